/** Folds equal lines that several ranks printed at about the same time; pure. */
import type { ILogLine } from '../model/answers.js';

export interface IFolded {
  /** The first of the lines. */
  line: ILogLine;
  ranks: number[];
  /** The ids of its lines that are kept. */
  ids: Set<number>;
}

/** The number of last folds that are searched for an equal line. */
const WINDOW = 100;

export class Folding {
  /** Add a newer line; returns its fold, which may be new. */
  add(line: ILogLine): IFolded {
    const joined = line.is_open ? undefined : this._equal(line);
    const fold = joined ?? { line, ranks: [], ids: new Set() };
    fold.ranks.push(line.rank);
    fold.ids.add(line.id);
    this._folds.set(line.id, fold);
    if (joined === undefined && !line.is_open) {
      this._recent.push(fold);
      this._recent.splice(0, this._recent.length - WINDOW);
    }
    return fold;
  }

  /** The fold of a line. */
  of(id: number): IFolded | undefined {
    return this._folds.get(id);
  }

  /** Remove a line; returns its fold if that is empty now. */
  drop(id: number): IFolded | null {
    const fold = this._folds.get(id);
    this._folds.delete(id);
    fold?.ids.delete(id);
    return fold?.ids.size === 0 ? fold : null;
  }

  clear(): void {
    this._folds.clear();
    this._recent.length = 0;
  }

  /** The oldest fold with an equal line which this rank may join without changing its order of lines. */
  private _equal(line: ILogLine): IFolded | undefined {
    return this._recent.find(
      ({ line: other, ranks }) =>
        other.text === line.text &&
        other.level === line.level &&
        other.trial_id === line.trial_id &&
        other.run === line.run &&
        !ranks.includes(line.rank)
    );
  }

  private readonly _folds = new Map<number, IFolded>();
  private readonly _recent: IFolded[] = [];
}

/** 0–3, 5 */
export function ranksText(ranks: readonly number[]): string {
  const parts: [number, number][] = [];
  for (const rank of [...ranks].sort((a, b) => a - b)) {
    const last = parts.at(-1);
    if (last !== undefined && rank === last[1] + 1) {
      last[1] = rank;
    } else {
      parts.push([rank, rank]);
    }
  }
  return parts.map(([from, to]) => (from === to ? `${from}` : `${from}–${to}`)).join(', ');
}
