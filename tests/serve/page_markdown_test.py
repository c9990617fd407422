#!/usr/bin/env python3
"""Markdown in the page of slm serve, in a headless Chromium: its elements, hostile and random texts, streams.
usage: page_markdown_test.py PROGRAM SOURCE_DIR"""
import json
import re
import sys
import threading
import unittest

from scripted import BODY, ScriptedCase, Script


class PageMarkdownTest(ScriptedCase):
    def structure(self, text):
        """The elements that a text becomes, as the browser writes them, without buttons."""
        return self.browser.run(f"""(() => {{
            const element = document.createElement("div");
            new MarkdownView(element).show({json.dumps(text)}, []);
            for (const button of element.querySelectorAll("button")) button.remove();
            return element.innerHTML.replaceAll(' rel="noopener noreferrer" target="_blank"', "").replaceAll(' tabindex="0"', "");
        }})()""")

    def test_markdown(self):
        for text, expected in (
                ("a *b* **c** ***d*** _e_ snake_case_name 2*3*4 ~~f~~", "<p>a <em>b</em> <strong>c</strong> <em><strong>d</strong></em> "
                 "<em>e</em> snake_case_name 2<em>3</em>4 <del>f</del></p>"),
                ("**a *b* c** \\*d\\* `e*f` ``g`h``", "<p><strong>a <em>b</em> c</strong> *d* <code>e*f</code> <code>g`h</code></p>"),
                ("# One\n### Three\ntext\nmore", "<h2>One</h2><h4>Three</h4><p>text<br>more</p>"),
                ("- a\n- b\n  - c\n\n1. x\n2. y", "<ul><li><p>a</p></li><li><p>b</p><ul><li><p>c</p></li></ul></li></ul>"
                 '<ol start="1"><li><p>x</p></li><li><p>y</p></li></ol>'),
                ("3) x\n   ```py\n   if a:\n       b\n   ```\n4) y", '<ol start="3"><li><p>x</p><figure><figcaption><span>py</span></figcaption>'
                 "<pre><code>if a:\n    b</code></pre></figure></li><li><p>y</p></li></ol>"),
                ("> a\n> > b\n\n---", "<blockquote><p>a</p><blockquote><p>b</p></blockquote></blockquote><hr>"),
                ("|a|b|\n|-|:-:|\n|1|`2`|\n|3\\|4", '<div class="table"><table><thead><tr><th class="left">a</th><th class="center">b</th></tr>'
                 '</thead><tbody><tr><td class="left">1</td><td class="center"><code>2</code></td></tr><tr><td class="left">3|4</td></tr>'
                 "</tbody></table></div>"),
                ("[a *b*](https://x.org/y(z) \"t\") <mailto:me@x.org> https://x.org/a_b_c.",
                 '<p><a href="https://x.org/y(z)">a <em>b</em></a> <a href="mailto:me@x.org">mailto:me@x.org</a> '
                 '<a href="https://x.org/a_b_c">https://x.org/a_b_c</a>.</p>'),
                ("    code\n\n    more\ntext", "<figure><figcaption><span></span></figcaption><pre><code>code\n\nmore</code></pre></figure><p>text</p>"),
                ("````md\n```py\nx\n```\n````\nend", "<figure><figcaption><span>md</span></figcaption><pre><code>```py\nx\n```</code></pre></figure>"
                 "<p>end</p>")):
            with self.subTest(text=text):
                self.assertEqual(self.structure(text), expected)
                self.assertEqual(self.structure(text.replace("\n", "\r\n")).replace("\r", ""), expected)

    def test_no_text_becomes_markup_that_runs(self):
        for text in ("<script>window.taken = 1</script>", "<img src=x onerror='window.taken = 1'>", "[a](javascript:window.taken=1)",
                     "[a](<java\tscript:window.taken=1>)", "[a](data:text/html,x)", "[a](//x.org)", "[a](/v1/models)", "<javascript:alert(1)>",
                     "[a](JaVaScRiPt:alert(1))", "[a](vbscript:x)", "[a](file:///etc/passwd)", "[a](blob:x)", "![a](javascript:x)",
                     "```\"><script>window.taken = 1</script>\n<b>x</b>\n```", "|<b>a</b>|\n|-|\n|<svg onload=window.taken=1>|",
                     "[a](https://x.org/\" onclick=\"window.taken=1)", "&lt;script&gt;", "<!-- x -->", "[<b>](https://x.org)"):
            with self.subTest(text=text):
                found = self.structure(text)
                tags = re.sub(r">[^<]*<", "><", found)  # without texts
                self.assertNotRegex(tags, r"<(script|img|svg|b)\b|\son\w+=|href=\"(?!https:)")
        self.assertEqual(self.structure("[a](javascript:x)"), "<p>[a](javascript:x)</p>")
        self.assertEqual(self.structure("![*a*](https://x.org/i.png)"), '<p><span class="image" title="https://x.org/i.png"><em>a</em></span></p>')
        self.assertEqual(self.structure("[![a](https://x.org/i.png)](https://x.org)"),
                         '<p><a href="https://x.org/"><span class="image" title="https://x.org/i.png">a</span></a></p>')
        self.answer("q", "<img src=x onerror=\"document.title = 'taken'\"><script>document.title = 'taken'</script>\n\n[x](javascript:alert(1))")
        self.assertEqual(self.browser.run("document.title"), "slm")
        self.assertEqual(self.count("#talk :is(img, script, a)"), 0)
        self.answer("q", "[x](https://example.org)")
        self.assertEqual(self.browser.run("document.querySelector('#talk a').rel"), "noopener noreferrer")

    def test_random_texts_as_a_whole_and_streamed(self):
        """Each streamed text has the elements of the whole text, and only the permitted ones; every tint covers its range."""
        self.assertEqual(self.browser.run(r"""(() => {
            const parts = ["a", "b c", "*", "**", "_", "~~", "`", "``", "```", "~~~", "\n", "\n\n", "  ", "    ", "\t", "> ", "- ", "1. ", "# ", "|",
                           "|-|-|", "---", "[", "](", "](https://x.org)", ")", "![", "<b>", "<script>", "\\", "é😀", "https://x.org/a", "\r\n", "&amp;"];
            const allowed = new Set(["P", "BR", "EM", "STRONG", "DEL", "CODE", "PRE", "A", "SPAN", "UL", "OL", "LI", "BLOCKQUOTE", "HR", "FIGURE",
                                     "FIGCAPTION", "BUTTON", "H2", "H3", "H4", "H5", "H6", "DIV", "TABLE", "THEAD", "TBODY", "TR", "TH", "TD"]);
            let state = 12345;
            const draw = n => (state = (state * 48271) % 2147483647) % n;
            for (let round = 0; round < 1500; ++round) {
                let text = "";
                const drafted = [], streamed = document.createElement("div"), whole = document.createElement("div");
                const view = new MarkdownView(streamed);
                for (let n = draw(30); n >= 0; --n) {
                    const part = parts[draw(parts.length)];
                    if (draw(3) === 0) drafted.push([text.length, text.length + part.length]);
                    text += part;
                    view.show(text, drafted);
                }
                new MarkdownView(whole).show(text, drafted);
                if (streamed.innerHTML !== whole.innerHTML) return ["streamed", text, streamed.innerHTML, whole.innerHTML];
                for (const element of whole.querySelectorAll("*")) {
                    if (!allowed.has(element.tagName)) return ["element", text];
                    if (element.href && !element.href.startsWith("https://")) return ["link", text];
                }
                for (const button of whole.querySelectorAll("button")) button.remove();
                const sorted = string => [...string.replace(/\s/g, "")].sort();
                const shown = sorted([...whole.querySelectorAll(".drafted")].map(found => found.textContent).join(""));
                const given = sorted(drafted.map(([from, to]) => text.slice(from, to)).join(""));
                let at = 0;
                for (const character of given) if (character === shown[at]) ++at;
                if (at < shown.length) return ["tint", text, shown, given];
            }
            return "";
        })()"""), "")

    def test_hostile_texts_take_little_time(self):
        for text in ("*a ", "**a_", "[", "![", "[a](", "[a](https://x.org)", "`", "`a``", "> ", "- ", "<", "<https://", "https://x.org ", "\\", "# ",
                     "|", "|-", "1. ", "```\n", "a\n", "    ", "((", "~~a", "a ", "[](b", "-\n", "  - a\n", ">\n", "_", "![a](https://x.org "):
            with self.subTest(text=text):
                seconds = self.browser.run(f"""(() => {{
                    const element = document.body.appendChild(document.createElement("div")), began = performance.now();
                    new MarkdownView(element).show({json.dumps(text)}.repeat({100000 // len(text)}), []);
                    element.getBoundingClientRect();
                    element.remove();
                    return (performance.now() - began) / 1000;
                }})()""")
                self.assertLess(seconds, 20)

    def test_a_fence_that_is_not_closed_yet(self):
        gate = threading.Event()
        Script.scripts.append([{"content": "Look:\n\n```py\nprint('<b>')\n"}, gate, {"content": "```\nDone *now*"}])
        self.ask("q")
        self.browser.wait(f"document.querySelector('{BODY} pre')?.textContent.includes('<b>')")
        self.browser.run("document.querySelector('article.assistant p').isKept = true")
        self.assertEqual(self.count(f"{BODY} p"), 1)
        self.assertEqual(self.text("#send"), "Stop")
        gate.set()
        self.wait_for_answer()
        self.assertEqual(self.texts(f"{BODY} p"), ["Look:", "Done now"])
        self.assertTrue(self.browser.run("document.querySelector('article.assistant p').isKept"), "a finished block keeps its elements")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
