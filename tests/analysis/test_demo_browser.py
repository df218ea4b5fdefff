"""The page in a real browser, Chromium without a window."""

import json
import shutil
from urllib.parse import urlsplit

import pytest
from served import CAPS_NMT, CHECKPOINTS, MARIAN, needs_gradio, served

from hf_capsule_mt.cli.demo import _EXAMPLES
from hf_capsule_mt.translation.translator import translate_lines

pytest.importorskip("selenium", reason="the browser is driven by Selenium; pip install selenium")
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
pytestmark = [
    pytest.mark.slow,
    needs_gradio,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="there is no Chromium with its chromedriver here"),
]
PATIENCE = 180
SENTENCE = "a b c d"


@pytest.fixture(scope="module")
def url():
    with served(MARIAN, CAPS_NMT) as url:
        yield url


@pytest.fixture(scope="module")
def driver():
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for option in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1300,1200"):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture
def page(driver, url):
    """The page, just opened."""
    driver.get_log("performance")
    driver.get(url)
    return Page(driver)


class Page:
    """What a visitor does and sees."""

    def __init__(self, driver):
        self.driver = driver
        self.find("#sentence textarea")

    def wait(self, found):
        """Until `found()` is true; returns it."""
        from selenium.common.exceptions import StaleElementReferenceException
        from selenium.webdriver.support.ui import WebDriverWait

        waiting = WebDriverWait(self.driver, PATIENCE, ignored_exceptions=[StaleElementReferenceException])
        return waiting.until(lambda _: found())

    def visible(self, selector):
        return [each for each in self.driver.find_elements("css selector", selector) if each.is_displayed()]

    def find(self, selector):
        return self.wait(lambda: self.visible(selector))[0]

    def type(self, selector, text, end="ENTER"):
        from selenium.webdriver.common.keys import Keys

        field = self.find(selector)
        field.click()
        field.send_keys(Keys.CONTROL, "a")
        field.send_keys(Keys.BACKSPACE, text, getattr(Keys, end))

    def paste(self, sentence):
        """A text that would take long to type."""
        script = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))"
        self.driver.execute_script(script, self.find("#sentence textarea"), sentence)
        self.find("#translate").click()

    def has_translation(self, translation, number=1):
        """Once it is shown."""
        return self.wait(lambda: self.find(f"#translation-{number} textarea").get_attribute("value") == translation)

    def problem(self, number=1):
        """Once there is one."""
        return self.wait(lambda: self.find(f"#problem-{number} .problem").text)

    def picture(self, number=1, other_than=None):
        """The address of the picture, once it is drawn."""
        shown = f"return document.querySelector('#picture-{number} img')?.naturalWidth > 300"
        self.wait(lambda: self.driver.execute_script(shown))
        source = lambda: self.find(f"#picture-{number} img").get_attribute("src")  # noqa: E731
        return self.wait(lambda: source() != other_than and source())

    def choose_picture(self, title, number=1):
        self.wait(lambda: [each for each in self.visible(f"#title-{number} label") if each.text == title])[0].click()


def expected(folder, sentence=SENTENCE):
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    return translate_lines(model, tokenizer, [sentence])[0]


def requested(driver):
    """The addresses of all that the browser asked for."""
    for entry in driver.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            yield message["params"]["request"]["url"]


def test_it_opens_with_an_example_and_more_to_click(page):
    first, second, *_ = _EXAMPLES
    page.has_translation(expected(MARIAN, first))
    page.has_translation(expected(CAPS_NMT, first), 2)
    before = page.picture()
    assert page.find("#reading-1").text.startswith("Look ")
    [example] = [each for each in page.visible("#examples button") if each.text == second]
    example.click()
    page.has_translation(expected(MARIAN, second))
    page.picture(other_than=before)
    assert page.find("#sentence textarea").get_attribute("value") == second


def test_two_checkpoints_and_step_by_step(page):
    from selenium.webdriver.common.keys import Keys

    page.type("#sentence textarea", SENTENCE)
    page.has_translation(expected(MARIAN))
    page.has_translation(expected(CAPS_NMT), 2)
    first = page.picture()
    page.picture(number=2)
    assert not page.visible("#step-1")
    page.choose_picture("Decoder layers")
    second = page.picture(other_than=first)
    page.find("#step-1 input[type=range]").send_keys(Keys.ARROW_RIGHT)
    page.picture(other_than=second)
    assert page.find("#picture-1 img").get_attribute("alt") == "Decoder layers"
    hosts = {urlsplit(address).hostname for address in requested(page.driver)} - {None}
    assert hosts == {"127.0.0.1"}


def test_one_checkpoint(page):
    page.find("#compare input").click()
    page.wait(lambda: not page.visible("#checkpoint-2"))
    page.type("#sentence textarea", SENTENCE)
    page.has_translation(expected(MARIAN))
    page.picture()
    assert not page.visible("#picture-2")


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("/absent", "/absent is not a folder"),
        (str(CHECKPOINTS), "holds no config (config.json)"),
    ],
)
def test_a_wrong_path(page, path, problem):
    page.type("#checkpoint-1 input", path, end="TAB")
    page.paste(SENTENCE)
    assert problem in page.problem()
    assert "--model" not in page.problem()
    page.has_translation(expected(CAPS_NMT), 2)
