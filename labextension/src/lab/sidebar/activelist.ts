/** The section of experiments that run, wait or are paused. */
import type { IExperimentRow } from '../../model/state.js';
import type { ITrans } from '../../model/trans.js';
import { activeHeight, ActiveRow } from './activerow.js';
import type { IOperations } from './operations.js';
import { WindowedList } from './list.js';
import { byUrgency, isActive, Listing } from './listing.js';

type Rows = ReadonlyMap<number, IExperimentRow>;

export class ActiveList {
  readonly list: WindowedList<IExperimentRow>;

  constructor(
    trans: ITrans,
    operations: IOperations,
    mayWrite: () => boolean,
    onScroll: (scroll: number) => void
  ) {
    this.list = new WindowedList<IExperimentRow>({
      label: trans.__('Running and waiting experiments'),
      keyOf: ({ id }) => id,
      heightOf: activeHeight,
      nameOf: ({ name }) => name,
      create: () => new ActiveRow(trans, operations, mayWrite),
      onOpen: ({ id }) => operations.open(id),
      onRename: ({ id }) => void operations.rename(id),
      onScroll
    });
    const { node } = this.list;
    node.addEventListener('pointerenter', () => (this._isHeld = true));
    node.addEventListener('pointerleave', () => {
      this._isHeld = false;
      this._show();
    });
  }

  get count(): number {
    return this._listing.lines.length;
  }

  get counts(): { running: number; waiting: number; paused: number } {
    const { lines } = this._listing;
    const waiting = lines.filter(({ status }) => status === 'queued').length;
    const paused = lines.filter(({ status }) => status === 'paused').length;
    return { running: lines.length - waiting - paused, waiting, paused };
  }

  /** Update these lines; `null`: all. */
  update(ids: Iterable<number> | null, rows: Rows): void {
    if (ids === null) {
      this._listing.reset(rows);
    } else {
      this._listing.change(ids, rows);
    }
    this._show(); // heights depend on the texts
  }

  /** Keeps rows in place under the pointer, so that a second click does not hit another row. */
  private _show(): void {
    const { lines } = this._listing;
    if (this._isHeld) {
      const held = this._shown.flatMap(id => this._listing.get(id) ?? []);
      const known = new Set(this._shown);
      const items = [...held, ...lines.filter(({ id }) => !known.has(id))];
      this._shown = items.map(({ id }) => id);
      this.list.setItems(items);
    } else {
      this._shown = lines.map(({ id }) => id);
      this.list.setItems(lines);
    }
  }

  private _isHeld = false;
  private _shown: number[] = [];
  private readonly _listing = new Listing(isActive, byUrgency);
}
