/** Runs something once, a moment after it was first asked for: many changes in that moment are one drawing. */
export class Later {
  private timer: NodeJS.Timeout | undefined;

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
