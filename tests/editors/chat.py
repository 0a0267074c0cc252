"""The extension's chat as a user sees it: the webview in a `Window`."""

import re
from typing import NamedTuple

from playwright.async_api import FrameLocator, Locator

from .window import Window

__all__ = ["Card", "Chat"]

EXTENSION_ID = "acp-coder.acp-coder"
READ_CARDS = """cards => cards.map(card => [
    card.querySelector('.head .title')?.textContent ?? '',
    [...card.classList].find(name => /^(pending|in_progress|completed|failed|cancelled)$/.test(name)) ?? '',
])"""


class Card(NamedTuple):
    """A tool call's card."""

    title: str
    status: str


class Chat:
    """Reads and clicks what the chat shows; `frame` is Playwright's, for what has no method here."""

    def __init__(self, window: Window) -> None:
        self._window = window

    @property
    def frame(self) -> FrameLocator:
        return self._window.webview(EXTENSION_ID)

    @property
    def box(self) -> Locator:
        """Where the user writes."""
        return self.frame.get_by_role("combobox", name=re.compile("^Message to"))

    async def open(self) -> None:
        """Shows the chat and waits until one can write in it."""
        await self._window.open_container("acp-coder")
        await self.box.wait_for()

    async def send(self, text: str) -> None:
        await self.box.fill(text)
        await self.box.press("Enter")

    async def stop(self) -> None:
        await self.frame.get_by_role("button", name="Stop", exact=True).click()

    async def permit(self, option: str) -> None:
        """Answers the first permission request that is in view with the option of this name."""
        await self.frame.locator("[data-permission]").get_by_role("button", name=option, exact=True).first.click()

    async def show_diff(self) -> None:
        """Opens the diff of the first permission request that is in view."""
        await self.frame.locator("[data-permission]").get_by_role("button", name="Show the diff").first.click()

    async def answers(self) -> list[str]:
        """The agent's messages that are drawn."""
        return [text.strip() for text in await self.frame.locator(".from-agent").all_inner_texts()]

    async def prompts(self) -> list[str]:
        """The user's messages that are drawn."""
        return await self.frame.locator(".from-user .said").all_inner_texts()

    async def notices(self) -> list[str]:
        return await self.frame.locator(".notice").all_inner_texts()

    async def cards(self) -> list[Card]:
        """The tool calls that are drawn."""
        return [Card(*card) for card in await self.frame.locator(".card[data-tool]").evaluate_all(READ_CARDS)]

    async def options(self) -> list[str]:
        """The names of the permission options that are asked about."""
        buttons = self.frame.locator("[data-permission] button.option")
        found: list[str] = await buttons.evaluate_all("all => all.map(button => button.getAttribute('aria-label'))")
        return found

    async def choose(self, picker: str, choice: str) -> None:
        """Chooses the mode, the model or whatever else in the list that its button opens."""
        await self.picker(picker).click()
        await self._window.choose(choice)

    def picker(self, name: str) -> Locator:
        return self.frame.get_by_role("combobox", name=name, exact=True)

    def option(self, name: str) -> Locator:
        """The button of an answer to a permission request."""
        return self.frame.locator("[data-permission]").get_by_role("button", name=name, exact=True)
