import type { LineEdit } from "./lines.js";
import { lineAfter } from "./lines.js";
import type { CallRecord } from "./toolCalls.js";
import { isOver } from "./toolCalls.js";

/** Where a tool call is shown in an editor. */
export interface Mark {
  readonly path: string;
  /** 0-based; moves with the text. */
  readonly line: number;
  readonly record: CallRecord;
}

interface Place {
  readonly path: string;
  /** As reported by the agent, 1-based: repeating a line does not undo the effect of edits. */
  readonly said: number;
  line: number;
}

/** Calls without a location, or from before this window, are not shown anywhere. */
export class Marks {
  private readonly places = new Map<string, Place[]>();
  private readonly records = new Map<string, CallRecord>();

  /** Returns the paths whose marks changed. */
  update(record: CallRecord): Set<string> {
    const key = keyOf(record);
    const before = this.places.get(key) ?? [];
    if (record.replayed || (before.length === 0 && !this.records.has(key) && isOver(record.status) && record.locations.length === 0)) {
      return new Set();
    }
    const known = this.records.get(key);
    // Where a call ends with locations, they are those of the text as the call has left it.
    const fresh = isOver(record.status) && known !== undefined && !isOver(known.status) && record.locations !== known.locations;
    const after = shown(record).map(({ path, line }) => {
      const said = Math.max(1, line ?? 1);
      return (fresh ? undefined : before.find((place) => place.path === path && place.said === said)) ?? { path, said, line: said - 1 };
    });
    this.places.set(key, after);
    this.records.set(key, record);
    return new Set([...before, ...after].map(({ path }) => path));
  }

  /** The files that have marks. */
  get paths(): string[] {
    return [...new Set([...this.places.values()].flatMap((places) => places.map(({ path }) => path)))];
  }

  edited(path: string, edits: readonly LineEdit[]): void {
    for (const places of this.places.values()) {
      for (const place of places) {
        if (place.path === path) {
          place.line = edits.reduce(lineAfter, place.line);
        }
      }
    }
  }

  /** The marks of a file, in the order of the calls; if two calls share a line both are returned. */
  of(path: string): Mark[] {
    const marks: Mark[] = [];
    for (const [key, places] of this.places) {
      const record = this.records.get(key);
      const lines = new Set<number>();
      for (const place of places) {
        if (place.path === path && record !== undefined && !lines.has(place.line)) {
          lines.add(place.line);
          marks.push({ path, line: place.line, record });
        }
      }
    }
    return marks;
  }

  /** Removes ended calls and keeps running ones. Returns the paths whose marks changed. */
  clear(which: (record: CallRecord) => boolean = () => true): Set<string> {
    const paths = new Set<string>();
    for (const [key, record] of [...this.records]) {
      if (isOver(record.status) && which(record)) {
        for (const { path } of this.places.get(key) ?? []) {
          paths.add(path);
        }
        this.places.delete(key);
        this.records.delete(key);
      }
    }
    return paths;
  }
}

/** What a call looks at is one place in a file, however often it finds something there: only changes are each shown. */
function shown(record: CallRecord): CallRecord["locations"] {
  const looks = record.kind === "read" || record.kind === "search";
  return looks ? record.locations.filter(({ path }, at, all) => all.findIndex((each) => each.path === path) === at) : record.locations;
}

function keyOf({ sessionId, toolCallId }: CallRecord): string {
  return `${sessionId}\u0000${toolCallId}`;
}
