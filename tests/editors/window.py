"""A window of VS Code as a user has it: reads what is on the screen, acts with keys and clicks.

Everything is read from the workbench's elements, nothing from its insides. Waits end after `SECONDS`. Of lists and
editors the workbench draws only what is in view, so only that is read.
"""

import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import anyio
import pytest
from playwright.async_api import Error, FrameLocator, Locator, Page, expect

__all__ = ["SECONDS", "Row", "Window"]

SECONDS = 120.0
"""Bound of each wait in a window; the first start of the workbench may take three times as long."""
LOADING = ("Execution context was destroyed", "Frame was detached")
"""Of Playwright, about a view that is just being loaded anew."""
T = TypeVar("T")
QUICK_INPUT = ".quick-input-widget:visible"
EDITOR = ".editor-group-container.active .editor-instance .monaco-editor:has(.view-lines)"
"""The active text editor: of a diff, both sides; the last is the modified one."""
BUTTONS = ":is(.monaco-button, .notification-list-item-message a)"
TAB_LABEL = ".tab-label .monaco-icon-label-container"
DARK, LIGHT = "Default Dark Modern", "Default Light Modern"

# A mark of the workbench's own. The smoke test driver could be asked too, but a server with it shows no notifications.
RESTORED = "() => performance.getEntriesByName('code/LifecyclePhase/Restored').length > 0"
# Lines are in the page in any order; their place says which is which.
READ_LINES = """editor => [...editor.querySelectorAll('.view-lines > .view-line')]
    .sort((a, b) => parseFloat(a.style.top) - parseFloat(b.style.top))
    .map(line => line.textContent.replaceAll('\\u00a0', ' ').replaceAll('\\u200b', ''))"""
READ_AFTER = """editor => [...editor.querySelectorAll('.view-lines > .view-line')]
    .sort((a, b) => parseFloat(a.style.top) - parseFloat(b.style.top))
    .flatMap(line => [...line.querySelectorAll('span')])
    .map(span => getComputedStyle(span, '::after').content)
    .filter(content => content.startsWith('"'))
    .map(content => JSON.parse(content).replaceAll('\\u00a0', ' '))"""
READ_ROWS = """pane => [...pane.querySelectorAll('.monaco-list-row')]
    .sort((a, b) => Number(a.dataset.index) - Number(b.dataset.index))
    .map(row => {
        const text = selector => row.querySelector(selector)?.textContent ?? '';
        const icon = row.querySelector('.custom-view-tree-node-item-icon')?.className ?? '';
        const expanded = row.getAttribute('aria-expanded');
        const name = /codicon-(?!modifier)([\\w-]+)/.exec(icon)?.[1] ?? '';
        const spin = /codicon-modifier-spin/.test(icon) ? '~spin' : '';
        return [text('.label-name'), text('.label-description'), name + spin,
                Number(row.getAttribute('aria-level')), expanded === null ? null : expanded === 'true'];
    })"""
READ_TERMINAL = """terminal => [...terminal.querySelectorAll('.xterm-rows > div')]
    .map(row => row.textContent.replaceAll('\\u00a0', ' ').trimEnd()).join('\\n').trimEnd()"""


class Row(NamedTuple):
    """A row of a tree view."""

    label: str
    description: str
    icon: str
    """The codicon's name, "sync~spin" for example; empty for another icon."""
    level: int
    expanded: bool | None
    """`None`: has no children."""


class Window:
    """One page with the workbench. `page` is Playwright's, for what has no method here."""

    def __init__(
        self, page: Page, url: str, write_settings: Callable[[dict[str, Any]], None], settings: dict[str, Any]
    ) -> None:
        self.page = page
        self._url = url
        self._write_settings = write_settings
        self._settings = settings
        page.set_default_timeout(SECONDS * 1000)

    # --- the window as a whole ------------------------------------------------------------------------------------

    async def open(self) -> None:
        await self.page.goto(self._url)
        await self._up()

    async def reload(self) -> None:
        """What "Developer: Reload Window" does."""
        await self.page.reload()
        await self._up()

    async def _up(self) -> None:
        await self.page.locator(".monaco-workbench .part.statusbar").wait_for(timeout=SECONDS * 3000)
        # Until the views of last time are restored, they may change under a click.
        await self.page.wait_for_function(RESTORED, timeout=SECONDS * 3000)

    async def change_settings(self, settings: dict[str, Any]) -> None:
        """As if the user edited the settings; windows see it a moment later."""
        self._settings = {**self._settings, **settings}
        self._write_settings(self._settings)

    async def use_theme(self, theme: str) -> None:
        await self.change_settings({"workbench.colorTheme": theme})
        kind = "vs-dark" if "Dark" in theme else "vs"
        await expect(self.page.locator(".monaco-workbench").first).to_have_class(
            re.compile(rf"(^|\s){kind}(\s|$)"), timeout=SECONDS * 1000
        )

    async def side_bar(self, width: int) -> None:
        """Drags the edge between the side bar and the editor; VS Code has a least width."""
        box = await self.page.locator(".part.sidebar").bounding_box()
        assert box is not None
        await self.page.mouse.move(box["x"] + box["width"], 300)
        await self.page.mouse.down()
        await self.page.mouse.move(box["x"] + width, 300, steps=4)
        await self.page.mouse.up()

    async def screenshot(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        await self.page.screenshot(path=file)

    async def eventually(self, read: Callable[[], Awaitable[T]], holds: Callable[[T], object]) -> T:
        """What `read` gives once `holds` of it; fails with what was read last. What is loading at the moment has
        nothing to read."""
        last: object = None
        with anyio.move_on_after(SECONDS):
            while True:
                try:
                    value = await read()
                except Error as error:
                    if not any(words in str(error) for words in LOADING):
                        raise
                    last = error
                else:
                    if holds(value):
                        return value
                    last = value
                await anyio.sleep(0.05)
        pytest.fail(f"after {SECONDS:.0f} s still: {last!r}")

    # --- commands and quick inputs --------------------------------------------------------------------------------

    async def command(self, title: str) -> None:
        """Runs a command from the palette, by its full title: `View: Toggle Terminal`."""
        await self.page.keyboard.press("F1")
        await self.answer(f">{title}", enter=False)
        await self.choose(title)

    async def answer(self, text: str, *, enter: bool = True) -> None:
        """Puts text into the quick input that is open."""
        field = self.page.locator(f"{QUICK_INPUT} input:not([type=checkbox])").first
        await field.fill(text)
        if enter:
            await field.press("Enter")

    async def choose(self, label: str) -> None:
        """Clicks the entry with exactly this label in the quick input."""
        rows = self.page.locator(f"{QUICK_INPUT} .quick-input-list .monaco-list-row")
        name = re.compile(rf"^\s*{re.escape(label)}\s*$")
        await rows.filter(has=self.page.locator(".monaco-icon-label .label-name", has_text=name)).first.click()

    async def quick_input(self) -> tuple[str, list[str]]:
        """Its title and message as one text, and the labels of its entries."""
        widget = self.page.locator(QUICK_INPUT)
        await widget.wait_for()
        texts = await widget.locator(".quick-input-title, .quick-input-message").all_inner_texts()
        labels = await widget.locator(".quick-input-list .monaco-list-row .label-name").all_inner_texts()
        return " ".join(text.strip() for text in texts if text.strip()), labels

    # --- editors --------------------------------------------------------------------------------------------------

    async def open_file(self, file: Path) -> None:
        await self.page.keyboard.press("Control+P")
        await self.answer(str(file), enter=False)
        await self.choose(file.name)
        await self.tab(file.name).wait_for()
        await self.page.locator(f"{EDITOR} .view-line").first.wait_for()

    def tab(self, label: str) -> Locator:
        """The tab, in any group, with exactly this label."""
        label_of = self.page.locator(TAB_LABEL, has_text=re.compile(rf"^{re.escape(label)}$"))
        return self.page.locator(".tabs-container > .tab").filter(has=label_of).first

    async def tabs(self) -> list[str]:
        return await self.page.locator(f".tabs-container > .tab {TAB_LABEL}").all_text_contents()

    async def is_dirty(self, label: str) -> bool:
        return "dirty" in (await self.tab(label).get_attribute("class") or "").split()

    async def editor_text(self) -> str:
        """The lines in view of the active editor."""
        return "\n".join(await self.page.locator(EDITOR).last.evaluate(READ_LINES))

    async def focus_editor(self) -> None:
        await self.page.locator(f"{EDITOR} .view-lines").last.click()

    async def go_to(self, line: int, column: int = 1) -> None:
        """Puts the cursor there, counted from 1."""
        await self.focus_editor()
        await self.page.keyboard.press("Control+G")
        await self.answer(f":{line}:{column}")
        await self.page.locator(QUICK_INPUT).wait_for(state="hidden")

    async def type(self, text: str) -> None:
        """Types where the focus is."""
        await self.page.keyboard.type(text)

    async def undo(self) -> None:
        await self.focus_editor()
        await self.page.keyboard.press("Control+Z")

    async def save(self) -> None:
        await self.page.keyboard.press("Control+S")

    async def diff(self) -> tuple[str, str]:
        """The lines in view of both sides of the diff editor."""
        sides = self.page.locator(".editor-group-container.active .monaco-diff-editor").last
        await sides.locator(".editor.modified .view-line").first.wait_for()
        original = await sides.locator(".editor.original > .monaco-editor").evaluate(READ_LINES)
        modified = await sides.locator(".editor.modified > .monaco-editor").evaluate(READ_LINES)
        return "\n".join(original), "\n".join(modified)

    async def decorations(self) -> list[str]:
        """The texts that extensions draw behind lines of the active editor (`after.contentText`)."""
        found: list[str] = await self.page.locator(EDITOR).last.evaluate(READ_AFTER)
        return found

    async def gutter_marks(self) -> int:
        """How many marks with an icon are in the gutter of the active editor."""
        return await self.page.locator(EDITOR).last.locator(".glyph-margin-widgets > .cgmr").count()

    async def lenses(self) -> list[str]:
        """The CodeLenses in view, one text for each; icons are left out."""
        texts = await self.page.locator(f"{EDITOR} .codelens-decoration > a").all_inner_texts()
        return [text.strip() for text in texts]

    async def click_lens(self, text: str) -> None:
        await self.page.locator(f"{EDITOR} .codelens-decoration > a", has_text=text).first.click()

    # --- views ----------------------------------------------------------------------------------------------------

    async def open_container(self, title: str) -> None:
        """Shows a view container of the activity bar."""
        item = self.page.locator(f".part.activitybar .action-item:has(a[aria-label^='{title}'])").first
        await item.wait_for(timeout=SECONDS * 3000)
        shown = self.page.locator(".part.sidebar .composite.title:visible", has_text=title)
        # A click on the container that is shown already hides it.
        if not await shown.count():
            await item.click()
            # Or else the item's tooltip covers a part of the view.
            await self.page.mouse.move(0, 0)
        await shown.wait_for()

    def view(self, title: str) -> Locator:
        """The pane of a view in a container that is shown."""
        header = self.page.locator(".pane-header h3.title", has_text=re.compile(rf"^{re.escape(title)}$"))
        return self.page.locator(".pane").filter(has=header).first

    async def views(self) -> list[str]:
        """The titles of the views in the side bar."""
        return await self.page.locator(".part.sidebar .pane-header h3.title").all_inner_texts()

    async def expand_view(self, title: str) -> None:
        header = self.view(title).locator(".pane-header")
        if await header.get_attribute("aria-expanded") != "true":
            await header.click()

    async def rows(self, title: str) -> list[Row]:
        """The rows in view of a tree view, which is unfolded for it."""
        await self.expand_view(title)
        return [Row(*row) for row in await self.view(title).evaluate(READ_ROWS)]

    def row(self, title: str, label: str) -> Locator:
        """A row, to be clicked."""
        name = self.page.locator(".label-name", has_text=re.compile(rf"^{re.escape(label)}$"))
        return self.view(title).locator(".monaco-list-row").filter(has=name).first

    def webview(self, extension: str, title: str | None = None) -> FrameLocator:
        """What an extension's webview shows; `title` chooses among several of them. Stays right after a reload."""
        outer = self.page.frame_locator(f"iframe.webview[src*='extensionId={extension}&']:visible")
        return outer.frame_locator("#active-frame" if title is None else f"#active-frame[title='{title}']")

    # --- messages, status bar, terminals --------------------------------------------------------------------------

    async def notifications(self) -> list[str]:
        return await self.page.locator(".notifications-toasts .notification-list-item-message").all_inner_texts()

    async def click_notification(self, button: str, *, containing: str = "") -> None:
        await self.notification(containing).locator(f"{BUTTONS}:text-is('{button}')").click()

    def notification(self, containing: str) -> Locator:
        return self.page.locator(".notifications-toasts .notification-list-item", has_text=containing)

    async def notification_buttons(self, containing: str) -> list[str]:
        """What can be chosen in a notification: its buttons, or the links at its end."""
        await self.notification(containing).wait_for()
        return await self.notification(containing).locator(BUTTONS).all_inner_texts()

    async def status_bar(self) -> list[str]:
        """The texts of the items, without their icons."""
        texts = await self.page.locator(".statusbar-item:visible .statusbar-item-label").all_inner_texts()
        return [text.strip() for text in texts if text.strip()]

    async def terminals(self) -> list[str]:
        """The names of the terminals in the panel."""
        tabs = await self.page.locator(".terminal-tabs-entry .label-name").all_inner_texts()
        return tabs or await self.page.locator(".part.panel .single-terminal-tab").all_inner_texts()

    async def terminal_text(self) -> str:
        """The rows in view of the terminal that is shown."""
        text: str = await self.page.locator(".terminal-wrapper.active .xterm").last.evaluate(READ_TERMINAL)
        return text
