"""Text is escaped by construction."""

from vitrail.report.html import Html, el, format_html, join, to_html


def test_text_is_escaped_and_markup_is_not():
    assert to_html("<b>") == "&lt;b&gt;"
    assert to_html(Html("<b>")) == "<b>"
    assert el("a", "<", href='"x"', class_="y", hidden=False, aria_label=None) == (
        '<a href="&quot;x&quot;" class="y">&lt;</a>'
    )
    assert join(["a<", None, Html("<i>")], "&") == "a&lt;&amp;<i>"
    assert format_html("{} is <{}>", "{x}", el("b", 1)) == "{x} is &lt;<b>1</b>&gt;"
