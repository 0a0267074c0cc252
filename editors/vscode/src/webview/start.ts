/** Connects the parts of the view, without drawing anything. */
import type { ToView } from "../core/messages";
import type { View } from "./context";
import { Memory, type ViewApi } from "./memory";
import { reveal } from "./reveal";
import { Bus } from "./signals";
import { Store } from "./store";

/** So many frames a question, or the box, has to be drawn. */
const FRAMES = 60;

export interface Started {
  readonly view: View;
  /** Handles a message from the extension. */
  readonly receive: (message: ToView) => void;
  /** The view may be gone next. */
  readonly leave: () => void;
}

export function start(api: ViewApi, nextFrame: (run: () => void) => void, inEditor = true): Started {
  const store = new Store(nextFrame);
  const memory = new Memory(api);
  const bus = new Bus();
  const view: View = {
    store,
    memory,
    bus,
    inEditor,
    post: (message) => {
      api.postMessage(message);
    },
  };
  /** A view that has just come draws the question in one of the next frames. */
  const focusQuestion = (frames: number): void => {
    nextFrame(() => {
      const subject = document.querySelector<HTMLElement>(".question .subject, .question.form :is(input, button.option)");
      if (subject) subject.focus();
      else if (frames > 0) focusQuestion(frames - 1);
    });
  };
  /** The box may be drawn only now, too. */
  const focusBox = (frames: number): void => {
    if (bus.hears("focus") || frames === 0) bus.emit("focus", undefined);
    else
      nextFrame(() => {
        focusBox(frames - 1);
      });
  };
  const receive = (message: ToView): void => {
    switch (message.type) {
      case "state":
        store.replace(message.state);
        memory.enter(message.state.session?.id);
        return;
      case "patch":
        store.patch(message);
        if (message.facts.session) memory.enter(message.facts.session.id);
        return;
      case "completions":
        bus.emit("completions", message);
        return;
      case "compose":
        bus.emit("compose", message);
        return;
      case "reveal":
        // The card may be part of the same frame's patch.
        nextFrame(() => {
          reveal(message.toolCallId, view);
        });
        return;
      case "focus":
        if (message.question === true && (store.facts.permissions.length > 0 || store.facts.form)) focusQuestion(FRAMES);
        else focusBox(FRAMES);
        return;
    }
  };
  return {
    view,
    receive,
    leave: () => {
      memory.flush();
    },
  };
}
