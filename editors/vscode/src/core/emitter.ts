/** Notifies listeners in the order they subscribed. A listener that throws does not affect the others. */
export class Emitter<T> {
  private readonly listeners = new Set<(value: T) => void>();

  constructor(private readonly onError: (error: unknown) => void = () => undefined) {}

  /** Returns the function that unsubscribes. */
  on(listener: (value: T) => void): () => void {
    this.listeners.add(listener);
    return () => {
      this.listeners.delete(listener);
    };
  }

  fire(value: T): void {
    for (const listener of [...this.listeners]) {
      try {
        listener(value);
      } catch (error) {
        this.onError(error);
      }
    }
  }
}
