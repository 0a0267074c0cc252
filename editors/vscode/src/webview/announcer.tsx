/** Tells who listens instead of looking what matters: an answer when it is whole, a permission when it is asked for. */
import { useEffect, useRef, useState } from "preact/hooks";
import type { JSX } from "preact";
import { useFact, useView } from "./context";

/** So much of an answer is read out; the rest is in the conversation. */
const MOST = 2_000;

export function Announcer(): JSX.Element {
  const { store } = useView();
  const running = useFact("running");
  const [permission] = useFact("permissions");
  const was = useRef(running);
  const [answer, setAnswer] = useState("");
  useEffect(() => {
    if (was.current && !running) {
      let text = "";
      for (const item of store.allItems()) {
        if (item.type === "user") text = "";
        else if (item.type === "agent") text = item.text;
      }
      setAnswer(text === "" ? `${store.facts.agent.name} has finished` : text.slice(0, MOST));
    }
    if (!was.current && running) setAnswer("");
    was.current = running;
  }, [running]);
  return (
    <div class="unseen">
      <div aria-live="polite" class="answer">
        {answer}
      </div>
      <div aria-live="assertive" class="asks">
        {permission ? [`Permission requested: ${permission.title}`, ...permission.about.why].join("\n") : ""}
      </div>
    </div>
  );
}
