/**
 * Draws what has changed in the next frames: each thing once, however often it changed, and no more
 * in a frame than leaves the page smooth.
 */
const BUDGET_MS = 7;

export type Draw = () => void;

class Frames {
  /** Have this drawn soon. */
  ask(draw: Draw): void {
    this._due.add(draw);
    this._frame ||= requestAnimationFrame(() => this._run());
  }

  /** It is no longer there. */
  drop(draw: Draw): void {
    this._due.delete(draw);
  }

  private _run(): void {
    this._frame = 0;
    const began = performance.now();
    let longest = 0; // as long as one of them took, the next may take
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

/** Those of the page: all its plots share its time. */
export const frames = new Frames();
