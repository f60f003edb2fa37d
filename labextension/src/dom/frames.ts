/**
 * Draws what has changed in the next frames: each thing once, however often it changed, and no more
 * in a frame than leaves the page smooth.
 */
const BUDGET_MS = 7;

export type Draw = () => void;

class Frames {
  /** Call `draw` in one of the next frames, once. */
  ask(draw: Draw): void {
    this._due.add(draw);
    this._frame ||= requestAnimationFrame(() => this._run());
  }

  /** Cancel a pending call. */
  drop(draw: Draw): void {
    this._due.delete(draw);
  }

  private _run(): void {
    this._frame = 0;
    const began = performance.now();
    let longest = 0; // the estimate of what the next one takes
    for (const draw of [...this._due]) {
      const before = performance.now();
      if (longest > 0 && before - began + longest > BUDGET_MS) {
        this._frame = requestAnimationFrame(() => this._run());
        return;
      }
      this._due.delete(draw);
      draw();
      longest = Math.max(longest, performance.now() - before);
    }
  }

  private readonly _due = new Set<Draw>();
  private _frame = 0;
}

/** The scheduler of the page, shared by all plots. */
export const frames = new Frames();
