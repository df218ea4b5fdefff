"use strict";
const STEP = 100;
const data = JSON.parse(document.getElementById("data").textContent);
const words = Object.fromEntries(data.kinds.map((kind) => [kind.name, kind.words]));
const faults = new Set(data.faults);
const explanations = {
  uncovered: "uncovered: the model almost did not look at it",
  term: "from the glossary",
  missing: "the translation lacks this term",
  placeholder: "not translated",
  placed: "put in next to its words: check its place",
  number: "only one side has this number",
  lowest: "the least likely word",
};
const byId = (id) => document.getElementById(id);
// The rows that pass the filters, in their order, and the first one that is drawn.
let shown = [];
let first = 0;

function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  // Never as HTML: the texts are whatever was translated.
  if (text !== undefined) made.textContent = text;
  return made;
}

function written(number) {
  return number.toLocaleString("en");
}

function plain(parts) {
  return parts.map((part) => (typeof part === "string" ? part : part[1])).join("");
}

function searched(row) {
  if (row.search === undefined) {
    const place = [data.files[row.file], row.unit || "", row.context || ""];
    row.search = [plain(row.source), plain(row.translation), ...place].join("\n").toLowerCase();
  }
  return row.search;
}

function textOf(parts, label) {
  const paragraph = element("p");
  paragraph.dir = "auto";
  paragraph.setAttribute("aria-label", label);
  for (const part of parts) {
    if (typeof part === "string") {
      paragraph.append(part);
      continue;
    }
    const mark = element("mark", part[0], part[1]);
    mark.title = explanations[part[0]];
    paragraph.append(mark);
  }
  return paragraph;
}

function placeOf(row) {
  const place = element("div", "place");
  if (row.unit) place.append(element("b", "", row.unit), " · ");
  if (row.context) place.append(row.context, " · ");
  if (data.files.length > 1) place.append(data.files[row.file], " · ");
  place.append(`line ${row.line}`);
  if (row.sentence > 1) place.append(`, sentence ${row.sentence}`);
  return place;
}

function numbersOf(row) {
  const numbers = [];
  if (row.score !== undefined) numbers.push(`score ${row.score.toFixed(2)}`);
  if (row.coverage !== undefined) numbers.push(`coverage ${row.coverage.toFixed(2)}`);
  if (row.length_ratio !== undefined) numbers.push(`length × ${row.length_ratio.toFixed(2)}`);
  if (row.lowest !== undefined) {
    numbers.push(`least likely ${row.lowest_word ? `“${row.lowest_word}”` : "the end"} ${row.lowest.toFixed(2)}`);
  }
  if (row.missing) numbers.push(`missing: ${row.missing.join(", ")}`);
  return element("div", "numbers", numbers.join(" · "));
}

function drawn(row) {
  const item = element("li", "row");
  item.append(placeOf(row));
  const texts = element("div", "texts");
  texts.append(textOf(row.source, "Source"), textOf(row.translation, "Translation"));
  item.append(texts);
  for (const kind of row.kinds) {
    item.append(element("span", faults.has(kind) ? "fault" : "hint", words[kind]));
  }
  item.append(numbersOf(row));
  return item;
}

function draw() {
  // Ten thousand rows at once would be slow.
  const some = shown.slice(first, first + STEP);
  byId("rows").replaceChildren(...some.map(drawn));
  const count = shown.length === 1 ? "1 translation" : `${written(shown.length)} translations`;
  const isPart = some.length < shown.length;
  byId("count").textContent = isPart ? `${written(first + 1)} to ${written(first + some.length)} of ${count}` : count;
  byId("pages").hidden = !isPart;
  byId("before").disabled = first === 0;
  byId("next").disabled = first + STEP >= shown.length;
}

function turn(step) {
  first += step;
  draw();
  byId("count").focus();
  byId("count").scrollIntoView();
}

function isShown(row, kind, file, search) {
  const hasKind = kind === "" || (kind === "*" ? row.kinds.some((name) => faults.has(name)) : row.kinds.includes(kind));
  return hasKind && (file === "" || row.file === Number(file)) && search.every((word) => searched(row).includes(word));
}

function order(rows, name) {
  if (name === "file") return rows.sort((a, b) => a.number - b.number);
  // What is not known comes last.
  if (name !== "worst") return rows.sort((a, b) => (a[name] ?? Infinity) - (b[name] ?? Infinity));
  return rows;
}

function update() {
  const search = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const [kind, file] = [byId("kind").value, byId("file").value];
  shown = order(data.rows.filter((row) => isShown(row, kind, file, search)), byId("order").value);
  first = 0;
  draw();
}

for (const kind of data.kinds) {
  byId("kind").append(new Option(`${kind.words} (${written(kind.count)})`, kind.name));
}
data.files.forEach((name, number) => byId("file").append(new Option(name, number)));
byId("files").hidden = data.files.length < 2;
byId("controls").addEventListener("input", update);
byId("controls").addEventListener("submit", (event) => event.preventDefault());
byId("before").addEventListener("click", () => turn(-STEP));
byId("next").addEventListener("click", () => turn(STEP));
update();
