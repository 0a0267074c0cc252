/** Runs something once, a moment after the first request: many changes in that moment cost one drawing. */
export class Later {
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly milliseconds: number,
    private readonly run: () => void,
  ) {}

  readonly soon = (): void => {
    this.timer ??= setTimeout(() => {
      this.timer = undefined;
      this.run();
    }, this.milliseconds);
  };

  dispose(): void {
    clearTimeout(this.timer);
    this.timer = undefined;
  }
}
