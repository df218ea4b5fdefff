"""What stands in front of the first element of a file of XML."""

import pytest

from hf_capsule_mt.translation.formats.xml_elements import first_element_is


@pytest.mark.parametrize(
    "before",
    [
        "",
        "\n ",
        '<?xml version="1.0"?>\n',
        '<!DOCTYPE resources [\n<!ENTITY a "]">\n] >',
        "<!-- <string> --> <!-- -->",
        # Each of them can be read in one way only, or this would not end.
        "<!---->" * 100_000,
    ],
)
def test_the_first_element(before):
    assert first_element_is("resources", f"{before}<resources>")
    assert first_element_is("resources", f"{before}<resources\nx='y'>")
    assert not first_element_is("resources", f"{before}<resources2>")
    assert not first_element_is("resources", f"{before}<r><resources>")
    assert not first_element_is("resources", f"{before}<resources")
    assert not first_element_is("resources", before)
