/** Filters and orders the experiments of a list; independent of the DOM. */
import { isEnded } from '../../model/clock.js';
import type { IExperimentRow, Status } from '../../model/state.js';
import type { ISettingValues } from '../tokens.js';

export type SortBy = ISettingValues['sortBy'];

/** The filters and the order of a list. */
export interface IQuery {
  text: string;
  /** '' for any. */
  status: Status | '';
  /** Experiments have all of these labels. */
  labels: readonly string[];
  sortBy: SortBy;
  showArchived: boolean;
}

/** Negative if `a` is above `b`; never 0 for two experiments. */
export type Order = (a: IExperimentRow, b: IExperimentRow) => number;
export type Accepts = (line: IExperimentRow) => boolean;

const names = new Intl.Collator(undefined, { numeric: true, sensitivity: 'base' });
/** The searched text of a line, cached: lines are immutable. */
const texts = new WeakMap<IExperimentRow, string>();

/** Whether it is shown under "Running and waiting"; others are finished. */
export function isActive(line: IExperimentRow): boolean {
  return !isEnded(line.status) && !line.is_archived;
}

export function acceptsOf({ text, status, labels, showArchived }: IQuery): Accepts {
  const finds = findsAll(text);
  return line =>
    !isActive(line) &&
    (showArchived || !line.is_archived) &&
    (status === '' || line.status === status) &&
    labels.every(label => line.labels.includes(label)) &&
    finds(line);
}

/** Accepts lines that contain all words of a text. */
export function findsAll(text: string): Accepts {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return line => words.every(word => textOf(line).includes(word));
}

export function orderOf(sortBy: SortBy): Order {
  switch (sortBy) {
    case 'newest':
      return byNewest;
    case 'oldest':
      return (a, b) => byNewest(b, a);
    case 'name':
      return (a, b) => names.compare(a.name, b.name) || byNewest(a, b);
    case 'metric':
      return byMetric;
  }
}

/** Running ones, newest first; then waiting ones by queue position; then paused ones. */
export const byUrgency: Order = (a, b) =>
  urgency(a) - urgency(b) || (a.status === 'queued' ? byQueue(a, b) : byNewest(a, b));

/** By queue position; beyond the front of the queue, whose positions are known, by priority. */
function byQueue(a: IExperimentRow, b: IExperimentRow): number {
  const [front, other] = [a.queue_place ?? Infinity, b.queue_place ?? Infinity];
  return (
    (front === other ? 0 : front - other) ||
    a.priority - b.priority ||
    a.position - b.position ||
    a.id - b.id
  );
}

function urgency({ status }: IExperimentRow): number {
  return status === 'paused' ? 2 : status === 'queued' ? 1 : 0;
}

function byNewest(a: IExperimentRow, b: IExperimentRow): number {
  return b.id - a.id;
}

/** By metric, then by value: the best first, those without a value last. */
function byMetric(a: IExperimentRow, b: IExperimentRow): number {
  if (a.best_metric === null || b.best_metric === null) {
    return Number(a.best_metric === null) - Number(b.best_metric === null) || byNewest(a, b);
  }
  const sign = a.smaller_is_better ? 1 : -1;
  return (
    compareText(a.metric, b.metric) ||
    Number(b.smaller_is_better) - Number(a.smaller_is_better) ||
    sign * (a.best_metric - b.best_metric) ||
    byNewest(a, b)
  );
}

function compareText(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

function textOf(line: IExperimentRow): string {
  let text = texts.get(line);
  if (text === undefined) {
    const { name, id, labels, notebook, entrypoint, description, failure } = line;
    text = [name, `#${id}`, line.status_word, ...labels, notebook, entrypoint, description, failure]
      .join('\n')
      .toLowerCase();
    texts.set(line, text);
  }
  return text;
}

/**
 * The accepted lines, in order. A change of one line costs a binary search, so that a hundred changes
 * per second among ten thousand lines are cheap.
 */
export class Listing {
  constructor(
    private _accepts: Accepts,
    private _order: Order
  ) {}

  get lines(): readonly IExperimentRow[] {
    return this._lines;
  }

  has(id: number): boolean {
    return this._byId.has(id);
  }

  get(id: number): IExperimentRow | undefined {
    return this._byId.get(id);
  }

  /** The index of a line; -1 if it is not shown. */
  placeOf(id: number): number {
    const line = this._byId.get(id);
    return line === undefined ? -1 : this._placeFor(line);
  }

  /** Apply another filter and order to all lines. */
  ask(accepts: Accepts, order: Order, rows: ReadonlyMap<number, IExperimentRow>): void {
    this._accepts = accepts;
    this._order = order;
    this.reset(rows);
  }

  reset(rows: ReadonlyMap<number, IExperimentRow>): void {
    this._lines = [...rows.values()].filter(this._accepts).sort(this._order);
    this._byId = new Map(this._lines.map(line => [line.id, line]));
  }

  /** Apply changed lines. Returns whether lines were added, removed or moved. */
  change(ids: Iterable<number>, rows: ReadonlyMap<number, IExperimentRow>): boolean {
    let isMoved = false;
    for (const id of ids) {
      isMoved = this._changeOne(id, rows.get(id)) || isMoved;
    }
    return isMoved;
  }

  private _changeOne(id: number, line: IExperimentRow | undefined): boolean {
    const before = this._byId.get(id);
    const after = line !== undefined && this._accepts(line) ? line : undefined;
    if (before === undefined && after === undefined) {
      return false;
    }
    const from = before === undefined ? -1 : this._placeFor(before);
    if (before !== undefined && after !== undefined && this._fits(after, from)) {
      this._lines[from] = after;
      this._byId.set(id, after);
      return false;
    }
    if (before !== undefined) {
      this._lines.splice(from, 1);
      this._byId.delete(id);
    }
    if (after !== undefined) {
      this._lines.splice(this._placeFor(after), 0, after);
      this._byId.set(id, after);
    }
    return true;
  }

  /** Whether a line is in order at this index. */
  private _fits(line: IExperimentRow, place: number): boolean {
    const [above, below] = [this._lines[place - 1], this._lines[place + 1]];
    return (
      (above === undefined || this._order(above, line) < 0) &&
      (below === undefined || this._order(line, below) < 0)
    );
  }

  /** The first index whose line is not above this one. */
  private _placeFor(line: IExperimentRow): number {
    let [low, high] = [0, this._lines.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this._order(this._lines[middle] as IExperimentRow, line) < 0) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }

  private _lines: IExperimentRow[] = [];
  private _byId = new Map<number, IExperimentRow>();
}

/** All labels of experiments, the most frequent first. */
export function labelsOf(rows: Iterable<IExperimentRow>): string[] {
  const counts = new Map<string, number>();
  for (const { labels } of rows) {
    labels.forEach(label => counts.set(label, (counts.get(label) ?? 0) + 1));
  }
  return [...counts].sort(([a, n], [b, m]) => m - n || compareText(a, b)).map(([label]) => label);
}
