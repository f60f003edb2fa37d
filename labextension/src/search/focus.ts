/** The pointed and the chosen trial and the filters, shared by all parts of a search's view. */
import { matches, type Brushes } from '../model/rows.js';
import type { ITrialRow } from '../model/state.js';

export class Focus {
  /** The trial whose details are shown. */
  get chosen(): number | null {
    return this._chosen;
  }

  /** The trial under the pointer or the keyboard's cursor. */
  get pointed(): number | null {
    return this._pointed;
  }

  get brushes(): Brushes {
    return this._brushes;
  }

  /** Call `listener` after each change. */
  onChange(listener: () => void): void {
    this._listeners.push(listener);
  }

  choose(trialId: number | null): void {
    if (trialId !== this._chosen) {
      this._chosen = trialId;
      this._tell();
    }
  }

  point(trialId: number | null): void {
    if (trialId !== this._pointed) {
      this._pointed = trialId;
      this._tell();
    }
  }

  /** Keep the trials within a range of an axis; `null` keeps all. */
  brush(axis: number, range: readonly [number, number] | null): void {
    const brushes = new Map(this._brushes);
    if (range === null) {
      brushes.delete(axis);
    } else {
      brushes.set(axis, range);
    }
    this._brushes = brushes;
    this._tell();
  }

  clearBrushes(): void {
    this._brushes = new Map();
    this._tell();
  }

  keeps(row: ITrialRow): boolean {
    return this._brushes.size === 0 || matches(row, this._brushes);
  }

  private _tell(): void {
    this._listeners.forEach(listener => listener());
  }

  private _chosen: number | null = null;
  private _pointed: number | null = null;
  private _brushes: Brushes = new Map();
  private readonly _listeners: (() => void)[] = [];
}
