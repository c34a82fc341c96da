#!/usr/bin/env python3
"""Opens the page in a headless Chromium and uses it as a person would.

    html_browser_test.py WRITE_PAGE_FOR_TEST

Ends with status 77, and says why, where there is no Chromium.
"""

import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True  # the source tree stays as it is
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import headless_browser  # noqa: E402

PLOT = "document.querySelector('.panel[data-schedule=\"{}\"] .plot')"


class HtmlPage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.browser = headless_browser.Browser().__enter__()
        cls.addClassCleanup(cls.browser.__exit__)

    def open(self, name, **more):
        page = self.browser.open(FOLDER / f"{name}.html", **more)
        page.wait_for("window.spiritlevel !== undefined")
        page.run("document.documentElement.style.scrollBehavior = 'auto'")
        return page

    def show(self, page, schedule):
        """Scrolls a timeline to the middle; its place on the screen."""
        plot = PLOT.format(schedule)
        page.run(f"{plot}.scrollIntoView({{block: 'center'}})")
        page.settle()
        page.wait_for("!spiritlevel.timelines.pending")
        return page.run(
            f"(() => {{ const b = {plot}.getBoundingClientRect();"
            " return {left: b.left, top: b.top, width: b.width, height: b.height}; })()"
        )

    def middle_of(self, page, schedule, rank, index):
        """Where on the screen an op is drawn."""
        box = self.show(page, schedule)
        at = page.run(
            f"""(() => {{
              const panel = spiritlevel.timelines.panels.find(
                (p) => p.run.info.schedule === '{schedule}');
              panel.draw();
              const lane = panel.run.lanes[{rank}];
              return {{x: panel.painter.x((lane.start[{index}] + lane.end[{index}]) / 2),
                      y: ({rank} + 0.5) * panel.height}};
            }})()"""
        )
        return box["left"] + at["x"], box["top"] + at["y"]

    def view(self, page):
        return page.run("[spiritlevel.timelines.view.from, spiritlevel.timelines.view.to]")

    def test_opens_without_a_complaint_wide_and_narrow_light_and_dark(self):
        for name in ("uneven", "sums", "verify", "hostile", "empty"):
            for width, scheme in ((1600, "light"), (800, "dark"), (360, "light")):
                with self.subTest(name=name, width=width, scheme=scheme):
                    page = self.open(name, width=width, scheme=scheme)
                    page.settle()
                    self.assertEqual(page.errors, [])
                    wider = page.run("document.documentElement.scrollWidth - window.innerWidth")
                    self.assertLessEqual(wider, 0, "the page scrolls sideways")

    def test_the_numbers_shown_are_those_of_the_json(self):
        page = self.open("uneven")
        results = json.loads((FOLDER / "uneven.json").read_text())["results"]
        cells = page.run(
            "[...document.querySelectorAll('.results tbody tr')].map((row) => Object.fromEntries("
            "[['schedule', row.dataset.schedule], ...[...row.querySelectorAll('[data-key]')]"
            ".map((cell) => [cell.dataset.key, Number(cell.dataset.value)])]))"
        )
        self.assertEqual(len(cells), len(results))
        compared = 0
        for row, result in zip(cells, results):
            self.assertEqual(row.pop("schedule"), result["schedule"])
            if result["step_ns"] is None:
                self.assertEqual(row, {})
                continue
            peaks = result["peak_bytes"]
            self.assertEqual(row.pop("peak_bytes"), max(peaks))
            self.assertEqual(row.pop("fullest_rank"), peaks.index(max(peaks)))
            for key, value in row.items():
                first, _, second = key.partition(".")
                self.assertEqual(value, result[first][second] if second else result[first], key)
                compared += 1
        self.assertGreater(compared, 80)

    def test_the_numbers_of_a_verification_are_those_of_the_json(self):
        page = self.open("verify")
        schedules = json.loads((FOLDER / "verify.json").read_text())["schedules"]

        def cells_of(section):
            return page.run(
                f"[...document.querySelectorAll('#{section} tbody tr')].map((row) =>"
                " [row.dataset.schedule, Object.fromEntries([...row.querySelectorAll('[data-key]')]"
                ".map((cell) => [cell.dataset.key, JSON.parse(cell.dataset.value)]))])"
            )

        rows = cells_of("results")
        self.assertEqual([name for name, _ in rows], [each["schedule"] for each in schedules])
        compared = 0
        for (_, cells), schedule in zip(rows, schedules):
            if schedule["measured_step_ns"] is None:
                self.assertEqual(cells, {})
                continue
            cells["idle_difference"] += schedule["idle_share_measured"]
            schedule["idle_difference"] = schedule["idle_share_predicted"]
            for key, value in cells.items():
                self.assertAlmostEqual(value, schedule[key], msg=key)
                compared += 1
        self.assertGreaterEqual(compared, 3 * 15)
        by_name = {each["schedule"]: each for each in schedules}
        compared = 0
        for name, cells in cells_of("memory"):
            ranks = by_name[name]["memory_by_rank"]
            for key, value in cells.items():
                expected = [rank[key] for rank in ranks] if key in ranks[0] else [by_name[name][key]]
                self.assertIn(value, expected, key)
                compared += 1
        self.assertGreaterEqual(compared, 3 * 4 * 5)

    def test_a_verification_draws_prediction_and_measurement_of_what_ran(self):
        page = self.open("verify")
        names = page.run("spiritlevel.timelines.panels.map((p) => p.run.info.schedule)")
        expected = [
            f"{name}, {which}"
            for name in ("1f1b", "zb-v", "dualpipe")
            for which in ("predicted", "measured")
        ]
        self.assertEqual([name for name in names if name in expected], expected)
        self.show(page, "zb-v, measured")
        self.assertEqual(page.errors, [])
        said = page.run("document.querySelector('#verdict .warning').textContent")
        self.assertIn("zb-h2: failed", said)
        refused = page.run(
            "document.querySelector('#results tr[data-schedule=\"gpipe\"] .reason').textContent"
        )
        self.assertEqual(refused, "not run: does not fit")

    def test_what_is_drawn_adds_up_to_the_json(self):
        page = self.open("uneven")
        for result in json.loads((FOLDER / "uneven.json").read_text())["results"]:
            if result["step_ns"] is None:
                continue
            name = result["schedule"]
            page.run(
                "[...document.querySelectorAll('.overview button')].find((b) =>"
                f" b.getAttribute('aria-label').startsWith('{name}:')).click()"
            )
            parts = page.run(
                "[...document.querySelectorAll('.steps [data-part]')].map((cell) =>"
                " [cell.dataset.part, Number(cell.dataset.value)])"
            )
            self.assertEqual(parts.pop(), ["step", result["step_ns"]])
            self.assertEqual(sum(value for _, value in parts), result["step_ns"], name)
            card = f"document.querySelector('.card[data-schedule=\"{name}\"]')"
            page.run(f"{card}.querySelector('details').open = true")
            page.wait_for(f"{card}.querySelector('tbody') !== null")
            rows = page.run(
                f"[...{card}.querySelectorAll('tbody tr')].map((row) =>"
                " [...row.querySelectorAll('td')].map((cell) => Number(cell.dataset.value)))"
            )
            self.assertEqual([row[0] for row in rows], result["busy_ns"])
            for row in rows:
                self.assertEqual(sum(row), result["makespan_ns"])

    def test_pointing_at_an_op_says_what_it_is_when_it_was_and_why_it_waited(self):
        page = self.open("uneven")
        x, y = self.middle_of(page, "1f1b", rank=1, index=0)
        page.mouse("mouseMoved", x, y)
        tip = page.run("document.getElementById('tip').innerText")
        # F of stage 0 is 9 ms after a launch of 11 us; the message takes 0.7 ms, and then rank 1
        # launches too.
        for words in ("1F0 on rank 1", "9.722 ms", "19.222 ms", "0F0 of rank 0", "waiting for B"):
            self.assertIn(words, tip)
        page.mouse("mouseMoved", x, 5)
        self.assertTrue(page.run("document.getElementById('tip').hidden"))

    def test_pointing_at_memory_gives_live_bytes_by_category(self):
        page = self.open("uneven")
        box = self.show(page, "zb-h1")
        page.mouse("mouseMoved", box["left"] + box["width"] / 2, box["top"] + box["height"] - 20)
        tip = page.run("document.getElementById('tip').innerText")
        for words in ("memory of rank", "live", "parameters", "1 GiB"):
            self.assertIn(words, tip)

    # Kinds are numbered as in NumberOf() of report/html_pack.cc.
    def point_at_node(self, page, panel, rank, kind):
        """Points at the first node of a kind; what the tip says then."""
        return self.point_at(
            page, panel, rank, "panel.row.ops / 2",
            f"""(() => {{
              const i = lane.shape.findIndex((shape) => run.shapes[shape].kind === {kind});
              return {{start: lane.start[i], end: lane.end[i]}};
            }})()""",
        )  # fmt: skip

    def point_at_sum(self, page, panel, rank, kind):
        lanes = ("gradient sums", "between ranks", "between ranks", "validated reduction")
        return self.point_at(
            page, panel, rank, f"panel.row.lanes[run.sumLanes.indexOf('{lanes[kind]}')] + 1",
            f"run.sums[{rank}].find((sum) => sum.kind === {kind})",
        )  # fmt: skip

    def point_at(self, page, panel, rank, below, what):
        at = page.run(
            f"""(() => {{
              const panel = spiritlevel.timelines.panels[{panel}];
              const [run, lane] = [panel.run, panel.run.lanes[{rank}]];
              const what = {what};
              spiritlevel.timelines.view.show(what.start - 3e7, what.end + 3e7);
              panel.figure.scrollIntoView({{block: 'center'}});
              panel.draw();
              const box = panel.plot.getBoundingClientRect();
              return {{x: box.left + panel.painter.x((what.start + what.end) / 2),
                      y: box.top + {rank} * panel.height + {below}}};
            }})()"""
        )
        page.settle()
        page.mouse("mouseMoved", at["x"], at["y"])
        self.assertFalse(page.run("document.getElementById('tip').hidden"))
        return page.run("document.getElementById('tip').innerText")

    def test_pointing_at_a_part_says_of_what_and_which_bucket_it_fills(self):
        page = self.open("sums")
        tip = self.point_at_node(page, panel=1, rank=3, kind=2)
        self.assertIn("part 1 of 3 of 3W4 on rank 3", tip)
        self.assertIn("fills gradient bucket 0; weight gradient of stage 3, micro-batch 4", tip)

    def test_dropped_ops_validations_and_rollbacks_are_named(self):
        page = self.open("sums")
        tip = self.point_at_node(page, panel=5, rank=0, kind=3)
        self.assertIn("dropped 0F0 on rank 0, iteration 1", tip)
        self.assertIn("ran on parameters that were then rejected", tip)
        tip = self.point_at_node(page, panel=5, rank=1, kind=7)
        self.assertIn("rollback on rank 1, iteration 1", tip)
        # A validation takes no time, and is found all the same.
        tip = self.point_at_node(page, panel=5, rank=2, kind=6)
        self.assertIn("validation on rank 2", tip)
        legend = page.run("document.querySelector('.legends').innerText")
        for words in ("dropped: ran on rejected parameters", "rollback", "validation"):
            self.assertIn(words, legend)

    def test_sums_have_lanes_of_their_own_and_say_what_they_are(self):
        page = self.open("sums")
        cases = [
            (0, 1, 0, ("sum of bucket 0 of stage 1 on rank 1", "over the data", "300 MiB")),
            (3, 1, 1, ("sum of stage", "with rank 2", "600 MiB", "3 ms")),
            (0, 3, 2, ("tied embedding, stage 3", "with rank 0", "for the other ranks", "250 MiB")),
            (4, 2, 3, ("reduction of iteration 0 on rank 2", "over all ranks", "1 ms")),
        ]
        for panel, rank, kind, expected in cases:
            with self.subTest(panel=panel, kind=kind):
                tip = self.point_at_sum(page, panel, rank, kind)
                for words in expected:
                    self.assertIn(words, tip)
        self.assertEqual(page.errors, [])
        # The lanes are there only where a run has something for them.
        lanes = page.run("spiritlevel.runs.map((run) => run.sumLanes.length)")
        self.assertEqual(lanes, [2, 2, 2, 2, 3, 3])
        page = self.open("uneven")
        heights = page.run(
            "spiritlevel.timelines.panels.map((p) => [p.height, p.row.lanes.length])"
        )
        self.assertTrue(all(height == [20, 0] for height in heights))
        self.assertNotIn("beside compute", page.run("document.querySelector('.legends').innerText"))

    def test_every_category_of_memory_has_a_colour_in_the_legend_and_the_stack(self):
        page = self.open("sums")
        legend = page.run(
            "[...document.querySelectorAll('.legends ul:last-child li')]"
            ".map((li) => li.innerText.trim())"
        )
        held = ["parameters", "gradients", "optimizer", "waiting for B", "waiting for W"]
        self.assertEqual(legend, held + ["workspace", "framework"])
        # The colours from the bottom up, in the middle of the first op of rank 0.
        stack = page.run(
            """(() => {
              const panel = spiritlevel.timelines.panels[0];
              panel.draw();
              const x = Math.round(panel.painter.x(panel.run.lanes[0].end[0] / 2)) + 1;
              const height = panel.memory.height;
              const pixels = panel.memory.getContext('2d').getImageData(x, 0, 1, height).data;
              const column = [];
              for (let y = height - 1; y >= 0; --y)
                column.push([...pixels.slice(4 * y, 4 * y + 3)].join());
              const shown = panel.run.memory(0, 0).during;
              return {column, shown: [...shown], hex: spiritlevel.data.memory_categories.map(
                (name) => getComputedStyle(document.documentElement)
                  .getPropertyValue('--m-' + name).trim())};
            })()"""
        )
        seen = list(dict.fromkeys(stack["column"]))
        order = []
        for value, colour in zip(stack["shown"], stack["hex"]):
            rgb = ",".join(str(int(colour[i : i + 2], 16)) for i in (1, 3, 5))
            if value > 0 and rgb in seen:
                order.append(seen.index(rgb))
        self.assertEqual(order, sorted(order))
        # At least those that are several pixels high: three of static memory, and what waits.
        self.assertGreaterEqual(len(order), 4)

    def test_the_wheel_zooms_what_has_the_focus_around_the_pointer(self):
        page = self.open("uneven")
        box = self.show(page, "zb-v")
        x, y = box["left"] + 62 + (box["width"] - 62) / 4, box["top"] + 10
        page.mouse("mouseWheel", x, y, deltaX=0, deltaY=-10)  # only scrolls
        page.run("new Promise((done) => setTimeout(done, 300))")
        whole = self.view(page)
        self.assertEqual(whole[0], 0)
        box = self.show(page, "zb-v")
        y = box["top"] + 10
        page.click(x, y)
        page.mouse("mouseWheel", x, y, deltaX=0, deltaY=-600)
        page.wait_for(f"spiritlevel.timelines.view.span < {whole[1]} / 2")
        begin, end = self.view(page)
        self.assertAlmostEqual(begin + (end - begin) / 4, whole[1] / 4, delta=whole[1] / 100)

    def test_dragging_moves_and_never_leaves_the_run(self):
        page = self.open("uneven")
        box = self.show(page, "zb-v")
        x, y = box["left"] + box["width"] / 2, box["top"] + 10
        page.run("spiritlevel.timelines.view.zoom(4)")
        before = self.view(page)
        page.mouse("mousePressed", x, y, button="left", buttons=1, clickCount=1)
        page.mouse("mouseMoved", x - 100, y, button="left", buttons=1)
        page.mouse("mouseReleased", x - 100, y, button="left")
        after = self.view(page)
        moved = 100 * (before[1] - before[0]) / (box["width"] - 62)
        self.assertAlmostEqual(after[0] - before[0], moved, delta=moved / 50)
        page.mouse("mousePressed", x, y, button="left", buttons=1, clickCount=1)
        page.mouse("mouseMoved", x + 5000, y, button="left", buttons=1)
        page.mouse("mouseReleased", x + 5000, y, button="left")
        self.assertEqual(self.view(page)[0], 0)

    def test_keys_alone_do_everything(self):
        page = self.open("uneven")
        for _ in range(60):  # Tab reaches a timeline from the top of the page
            page.key("Tab")
            if page.run("document.activeElement.classList.contains('plot')"):
                break
        self.assertEqual(page.run("document.activeElement.parentElement.dataset.schedule"), "gpipe")
        outline = page.run("getComputedStyle(document.activeElement).outlineStyle")
        self.assertNotEqual(outline, "none", "the focus cannot be seen")
        whole = self.view(page)
        page.key("+", "+")
        zoomed = self.view(page)
        self.assertLess(zoomed[1] - zoomed[0], whole[1] - whole[0])
        page.key("ArrowRight")
        self.assertGreater(self.view(page)[0], zoomed[0])
        page.key("ArrowLeft")
        page.key("-", "-")
        page.key("Home")
        self.assertEqual(self.view(page), whole)
        page.key("ArrowDown")
        page.key("ArrowDown")
        page.key(".", ".")
        said = page.run("document.getElementById('spoken').textContent")
        self.assertRegex(said, r"^\d[FBW]+\d on rank \d: .*Waited: .*Live memory .*after\.$")
        self.assertFalse(page.run("document.getElementById('tip').hidden"))
        page.key("Escape")
        self.assertTrue(page.run("document.getElementById('tip').hidden"))
        page.key("?", "?", shift=True)
        self.assertTrue(page.run("document.getElementById('help').open"))
        page.key("Escape")
        self.assertFalse(page.run("document.getElementById('help').open"))
        page.key("t", "t")
        self.assertEqual(page.run("document.documentElement.dataset.theme"), "light")

    def test_names_that_try_to_be_markup_stay_text(self):
        page = self.open("hostile")
        self.assertIsNone(page.run("window.owned"))
        self.assertEqual(page.run("document.querySelectorAll('img').length"), 0)
        name = page.run("document.querySelector('.eyebrow b').textContent")
        self.assertTrue(name.startswith("</script><script>window.owned = 1</script><!--<img"))
        shown = page.run("spiritlevel.timelines.panels[1].figure.querySelector('h3').textContent")
        self.assertEqual(shown, name)

    def test_the_policy_lets_no_other_script_run(self):
        page = self.open("uneven")
        page.run(
            "(() => { const made = document.createElement('script');"
            " made.textContent = 'window.owned = 1'; document.body.append(made); })()"
        )
        self.assertIsNone(page.run("window.owned"))

    def test_the_same_number_reads_the_same_in_page_and_program(self):
        page = self.open("uneven")
        shown = page.run(
            "[spiritlevel.time(300250000), spiritlevel.time(999999), spiritlevel.time(601),"
            " spiritlevel.time(1457300000), spiritlevel.time(0), spiritlevel.bytes(16000),"
            " spiritlevel.bytes(1610612736)]"
        )
        self.assertEqual(
            shown, ["300.2 ms", "1 ms", "601 ns", "1.457 s", "0 ns", "16,000 B", "1.5 GiB"]
        )

    def test_the_largest_page_opens_and_moves_at_once(self):
        begin = time.monotonic()
        page = self.open("large")
        page.settle()
        # A second or two where nothing else runs; the bound is for machines that are busy with
        # other tests.
        self.assertLess(time.monotonic() - begin, 5)
        ops = page.run("spiritlevel.data.runs.reduce((sum, run) => sum + run.ops, 0)")
        self.assertGreater(ops, 150_000)
        self.assertEqual(page.errors, [])
        self.show(page, "zb-v")
        page.wait_for("spiritlevel.timelines.seen.size > 0")  # without, nothing is drawn
        draws = page.run(
            "[1, 3, 10, 100].flatMap((zoom) => { const t = spiritlevel.timelines;"
            " t.view.fit(); t.view.zoom(zoom);"
            " return [0, 1, 2, 3, 4].map(() => { t.draw(t.seen); return t.lastDrawMs; }); })"
        )
        # 20 ms where nothing else runs. Other tests interrupt some draws, seldom half of them.
        self.assertLess(statistics.median(draws), 100)

    def test_what_is_on_the_screen_is_drawn_in_ink_on_paper_light_and_dark(self):
        shares = {}
        for scheme in ("light", "dark"):
            page = self.open("uneven", scheme=scheme)
            self.show(page, "1f1b")
            shot = FOLDER / f"{scheme}.png"
            page.screenshot(shot)
            shares[scheme] = self.browser.colours(shot)
            most, share = max(shares[scheme].items(), key=lambda one: one[1])
            with self.subTest(scheme=scheme):
                self.assertGreater(len(shares[scheme]), 50)
                self.assertLess(share, 0.9, f"nearly all is {most}")
                for kind in ("f", "bw", "paper", "ink", "m-parameters"):
                    colour = page.run(
                        "getComputedStyle(document.documentElement)"
                        f".getPropertyValue('--{kind}').trim()"
                    )
                    self.assertGreater(shares[scheme].get(colour, 0), 1e-4, f"no {kind}: {colour}")
        # What is paper on one is not there on the other.
        self.assertGreater(shares["light"]["#fbfaf7"], 0.1)
        self.assertLess(shares["dark"].get("#fbfaf7", 0), 0.01)

    def test_a_blank_screen_has_one_colour(self):
        page = self.browser.open("about:blank")
        page.screenshot(FOLDER / "blank.png")
        self.assertEqual(self.browser.colours(FOLDER / "blank.png"), {"#ffffff": 1})

    def test_prints_every_timeline_in_ink_on_paper(self):
        page = self.open("uneven", scheme="dark")
        page.run("window.dispatchEvent(new Event('beforeprint'))")
        page.settle()
        drawn = page.run(
            "spiritlevel.timelines.panels.filter((p) => p.rows.width === 3000).length"
        )
        self.assertEqual(drawn, page.run("spiritlevel.timelines.panels.length"))
        paper = page.run(
            "getComputedStyle(document.documentElement).getPropertyValue('--paper').trim()"
        )
        self.assertEqual(paper, "#fbfaf7")


if __name__ == "__main__":
    if headless_browser.find() is None:
        # In the words of GoogleTest, which those who sum up test results read.
        print("html_browser_test.py:1: Skipped\nno Chromium here: apt-get install chromium")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as temporary:
        FOLDER = pathlib.Path(temporary)
        subprocess.run([sys.argv[1], temporary], check=True)
        unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
