"""A Hub of our own on loopback: what huggingface_hub's client asks of one, kept in memory.

It takes commits of regular and of large files (in one part or several), serves them back at any branch or commit,
knows tokens and private repositories, checks the metadata of model cards, and can cut a connection during an upload.
"""

import base64
import hashlib
import json
import re
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

import yaml
from huggingface_hub.utils.sha import git_hash

USER = "user"
TOKEN = "hf_token_of_user"  # may write what is user's
OTHER_TOKEN = "hf_token_of_other"  # may write nothing of user's
PART = 100_000  # bytes of a part of a large file
_REPO = r"(?P<repo>[^/]+/[^/]+)"


@dataclass
class Repository:
    """Commits, each a dictionary of path -> content, and the branches that point to them."""

    private: bool
    commits: dict = field(default_factory=dict)
    branches: dict = field(default_factory=dict)
    messages: list = field(default_factory=list)

    def commit(self, branch, files, message):
        """Put a commit on a branch and return its hash."""
        history = json.dumps([sorted((path, git_hash(data)) for path, data in files.items()), len(self.messages)])
        sha = hashlib.sha1(history.encode()).hexdigest()
        self.commits[sha], self.branches[branch] = files, sha
        self.messages.append(message)
        return sha

    def sha(self, revision):
        """The commit that a branch or a hash means, or None."""
        return self.branches.get(revision, revision if revision in self.commits else None)

    @property
    def files(self):
        """Those of the main branch."""
        return self.commits[self.branches["main"]]


class Hub:
    """What the server knows, and what it was asked."""

    def __init__(self):
        self.repositories = {}
        self.large = {}
        """Large files by their SHA-256, and the parts of those that are on their way."""
        self.requests = []
        """Method, path and token of every request."""
        self.uploads_to_cut = 0
        """Uploads that will break off in the middle."""
        self.commits_to_lose = 0
        """Commits that will be made, and their answers lost."""
        self.xet_status = 404
        """What a request for access to Xet storage, which is not here, is answered with."""
        self.port = None

    @property
    def url(self):
        """The endpoint."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def storage_url(self):
        """Where large files are, for the client another host."""
        return f"http://localhost:{self.port}/storage"

    def environment(self, home, token=TOKEN):
        """The variables with which a process uses this Hub, with its cache and its settings in the folder `home`."""
        settings = {"HF_ENDPOINT": self.url, "HF_HOME": str(home), "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1"}
        return settings | ({"HF_TOKEN": token} if token is not None else {})


@contextmanager
def serve():
    """A running [`Hub`]."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    server.daemon_threads = True
    hub.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Refusal(Exception):
    def __init__(self, status, code=None, message=None, body=None):
        self.status, self.code, self.message, self.body = status, code, message, body


class _Handler(BaseHTTPRequestHandler):
    hub = None
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def _handle(self):
        url = urlsplit(self.path)
        self.path, self.body = url.path, None
        self.token = (self.headers.get("Authorization") or "").removeprefix("Bearer ") or None
        self.hub.requests.append((self.command, self.path, self.token))
        try:
            if self.token not in (None, TOKEN, OTHER_TOKEN):
                raise _Refusal(401, message="Invalid credentials in Authorization header")
            for methods, pattern, answer in _ROUTES:
                match = re.fullmatch(pattern, self.path)
                if match and self.command in methods:
                    return answer(self, **{name: unquote(value) for name, value in match.groupdict().items()})
            raise _Refusal(404, "EntryNotFound")
        except _Refusal as refusal:
            self._read()
            headers = {"X-Error-Code": refusal.code, "X-Error-Message": refusal.message}
            self._send(refusal.status, refusal.body or {"error": refusal.message}, headers)

    do_GET = do_HEAD = do_POST = do_PUT = _handle

    # Reading and answering

    def _read(self):
        if self.body is None:
            if self.headers.get("Transfer-Encoding") == "chunked":
                self.body = b"".join(iter(self._chunk, b""))
            else:
                self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return self.body

    def _chunk(self):
        size = int(self.rfile.readline(), 16)
        return self.rfile.read(size + 2)[:size]

    def _json(self):
        return json.loads(self._read())

    def _send(self, status, body=b"", headers=None):
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            if value is not None:
                self.send_header(name, str(value))
        self.send_header("Content-Length", len(body))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    # Who may do what

    def _repository(self, repo):
        found = self.hub.repositories.get(repo)
        if found is None or (found.private and self.token != TOKEN):
            raise _Refusal(404 if self.token else 401, "RepoNotFound", "Repository not found")
        return found

    def _may_write(self, repo):
        if self.token is None:
            raise _Refusal(401, message="Invalid username or password.")
        if self.token != TOKEN or repo.partition("/")[0] != USER:
            raise _Refusal(403, message=f"You don't have the rights to write to {repo}")

    def _commit_at(self, repository, revision):
        sha = repository.sha(revision)
        if sha is None:
            raise _Refusal(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return sha

    # The API

    def whoami(self):
        if self.token is None:
            raise _Refusal(401, message="Invalid username or password.")
        self._send(200, {"type": "user", "name": USER if self.token == TOKEN else "other", "auth": {}, "orgs": []})

    def create(self):
        asked = self._json()
        repo = f"{asked.get('organization') or USER}/{asked['name']}"
        self._may_write(repo)
        if repo in self.hub.repositories:
            raise _Refusal(409, message="You already created this model repo", body={"url": f"{self.hub.url}/{repo}"})
        private = asked.get("visibility") == "private" or asked.get("private", False)
        repository = self.hub.repositories[repo] = Repository(private)
        repository.commit("main", {".gitattributes": b"*.safetensors filter=lfs\n"}, "initial commit")
        self._send(200, {"url": f"{self.hub.url}/{repo}"})

    def info(self, repo, revision="main"):
        repository = self._repository(repo)
        sha = self._commit_at(repository, revision)
        siblings = [{"rfilename": path} for path in repository.commits[sha]]
        known = {"id": repo, "modelId": repo, "sha": sha, "private": repository.private, "siblings": siblings}
        self._send(200, known | {"tags": [], "downloads": 0, "likes": 0})

    def tree(self, repo, revision, folder=""):
        repository = self._repository(repo)
        files = repository.commits[self._commit_at(repository, revision)]
        found = {path: data for path, data in files.items() if path.startswith(f"{folder}/" if folder else "")}
        if folder and not found:
            raise _Refusal(404, "EntryNotFound", f"{folder} does not exist")
        self._send(200, [self._entry(path, data) for path, data in found.items()])

    def _entry(self, path, data):
        return {"type": "file", "path": path, "size": len(data), "oid": git_hash(data)}

    def branch(self, repo, branch):
        self._may_write(repo)
        repository = self._repository(repo)
        self._read()
        if branch in repository.branches:
            raise _Refusal(409, message="Reference already exists")
        repository.branches[branch] = repository.branches["main"]
        self._send(201, {})

    def validate(self):
        errors = list(_errors_in_card(self._json()["content"]))
        if errors:
            raise _Refusal(400, body={"errors": [{"message": error} for error in errors], "warnings": []})
        self._send(200, {"errors": [], "warnings": []})

    def preupload(self, repo, revision):
        self._may_write(repo)
        repository = self._repository(repo)
        files = repository.commits[self._commit_at(repository, revision)]
        self._send(200, {"files": [self._upload_mode(file, files) for file in self._json()["files"]]})

    def _upload_mode(self, file, files):
        is_large = file["path"].endswith(".safetensors")
        known = files.get(file["path"])
        oid = None
        if known is not None:
            oid = hashlib.sha256(known).hexdigest() if is_large else git_hash(known)
        return {"path": file["path"], "uploadMode": "lfs" if is_large else "regular", "shouldIgnore": False, "oid": oid}

    def batch(self, repo):
        self._may_write(repo)
        self._repository(repo)
        objects = [self._upload(each["oid"], each["size"]) for each in self._json()["objects"]]
        self._send(200, {"transfer": "basic", "objects": objects})

    def _upload(self, oid, size):
        known = {"oid": oid, "size": size}
        if oid in self.hub.large:
            return known
        href = f"{self.hub.storage_url}/{oid}"
        if size <= PART:
            return known | {"actions": {"upload": {"href": href}}}
        parts = {str(number + 1): f"{href}/{number + 1}" for number in range(-(-size // PART))}
        done = f"{self.hub.url}/complete/{oid}"
        return known | {"actions": {"upload": {"href": done, "header": {"chunk_size": str(PART), **parts}}}}

    def commit(self, repo, revision):
        self._may_write(repo)
        repository = self._repository(repo)
        parent = self._commit_at(repository, revision)
        lines = [json.loads(line) for line in self._read().splitlines()]
        header, operations = lines[0]["value"], lines[1:]
        if header.get("parentCommit", parent) != parent:
            raise _Refusal(412, message="A commit has happened since. Please refresh and try again.")
        files = dict(repository.commits[parent])
        for operation in operations:
            kind, value = operation["key"], operation["value"]
            if kind == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif kind == "lfsFile" and value["oid"] in self.hub.large:
                files[value["path"]] = self.hub.large[value["oid"]]
            elif kind == "deletedFile" and value["path"] in files:
                del files[value["path"]]
            else:
                raise _Refusal(400, message=f"impossible: {kind} {value['path']}")
        sha = repository.commit(revision, files, header["summary"])
        if self.hub.commits_to_lose > 0:
            self.hub.commits_to_lose -= 1
            self.close_connection = True
            return self.connection.close()
        self._send(200, {"commitOid": sha, "commitUrl": f"{self.hub.url}/{repo}/commit/{sha}", "success": True})

    def xet(self, repo, revision):
        raise _Refusal(self.hub.xet_status, message="no access")

    # Files

    def resolve(self, repo, revision, path):
        repository = self._repository(repo)
        sha = self._commit_at(repository, revision)
        headers = {"X-Repo-Commit": sha}
        if path not in repository.commits[sha]:
            return self._send(404, {}, headers | {"X-Error-Code": "EntryNotFound"})
        data = repository.commits[sha][path]
        oid = hashlib.sha256(data).hexdigest()
        if oid not in self.hub.large:
            return self._send(200, data, headers | {"ETag": f'"{git_hash(data)}"'})
        headers |= {"X-Linked-Etag": f'"{oid}"', "X-Linked-Size": len(data)}
        self._send(302, b"", headers | {"Location": f"{self.hub.storage_url}/{oid}"})

    def load(self, oid):
        data = self.hub.large[oid]
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        if not asked:
            return self._send(200, data)
        first, last = int(asked[1]), int(asked[2] or len(data) - 1)
        part = {"Content-Range": f"bytes {first}-{last}/{len(data)}"}
        self._send(206, data[first : last + 1], part)

    def store(self, oid, part=None):
        if self.hub.uploads_to_cut > 0:
            self.hub.uploads_to_cut -= 1
            self.rfile.read(int(self.headers["Content-Length"]) // 2)
            self.close_connection = True
            return self.connection.close()
        data = self._read()
        if part is None:
            self._keep(oid, data)
        else:
            self.hub.large[oid, int(part)] = data
        self._send(200, b"", {"ETag": f'"{hashlib.md5(data).hexdigest()}"'})

    def complete(self, oid):
        numbers = [part["partNumber"] for part in self._json()["parts"]]
        self._keep(oid, b"".join(self.hub.large.pop((oid, number)) for number in numbers))
        self._send(200, {})

    def _keep(self, oid, data):
        if hashlib.sha256(data).hexdigest() != oid:
            raise _Refusal(400, message="the content is not what was announced")
        self.hub.large[oid] = data


_REVISION = r"(?P<revision>[^/]+)"
_ROUTES = [
    (("GET",), "/api/whoami-v2", _Handler.whoami),
    (("POST",), "/api/repos/create", _Handler.create),
    (("POST",), "/api/validate-yaml", _Handler.validate),
    (("GET",), f"/api/models/{_REPO}", _Handler.info),
    (("GET",), f"/api/models/{_REPO}/revision/{_REVISION}", _Handler.info),
    (("GET",), f"/api/models/{_REPO}/tree/{_REVISION}", _Handler.tree),
    (("GET",), f"/api/models/{_REPO}/tree/{_REVISION}/(?P<folder>.+)", _Handler.tree),
    (("POST",), f"/api/models/{_REPO}/branch/(?P<branch>[^/]+)", _Handler.branch),
    (("POST",), f"/api/models/{_REPO}/preupload/{_REVISION}", _Handler.preupload),
    (("POST",), f"/api/models/{_REPO}/commit/{_REVISION}", _Handler.commit),
    (("GET",), f"/api/models/{_REPO}/xet-write-token/{_REVISION}", _Handler.xet),
    (("POST",), rf"/{_REPO}\.git/info/lfs/objects/batch", _Handler.batch),
    (("GET", "HEAD"), f"/{_REPO}/resolve/{_REVISION}/(?P<path>.+)", _Handler.resolve),
    (("GET", "HEAD"), "/storage/(?P<oid>[0-9a-f]{64})", _Handler.load),
    (("PUT",), "/storage/(?P<oid>[0-9a-f]{64})", _Handler.store),
    (("PUT",), r"/storage/(?P<oid>[0-9a-f]{64})/(?P<part>\d+)", _Handler.store),
    (("POST",), "/complete/(?P<oid>[0-9a-f]{64})", _Handler.complete),
]


def _errors_in_card(content):
    """What the Hub's validation says of a model card, in the parts that we write."""
    match = re.match(r"---\n(.*?)\n---\n", content, flags=re.DOTALL)
    data = yaml.safe_load(match[1]) if match else None
    if not isinstance(data, dict):
        yield "there is no metadata"
        return
    for code in data.get("language", []):
        if not re.fullmatch("[a-z]{2,3}", code):
            yield f'"language" must be ISO 639 codes, not {code}'
    if data.get("license") == "other" and "license_name" not in data:
        yield '"license_name" is required with "license: other"'
    for model in data.get("model-index", []):
        if not isinstance(model.get("name"), str):
            yield '"model-index[0].name" must be a string'
        for result in model["results"]:
            yield from _errors_in_result(result)


def _errors_in_result(result):
    required = {"task": ("type",), "dataset": ("type", "name")}
    for part, names in required.items():
        for name in names:
            if not isinstance(result.get(part, {}).get(name), str):
                yield f'"model-index[0].results[0].{part}.{name}" is required'
    for metric in result.get("metrics") or [{}]:
        if not isinstance(metric.get("type"), str) or not isinstance(metric.get("value"), (int, float)):
            yield '"model-index[0].results[0].metrics" must have a type and a value'
