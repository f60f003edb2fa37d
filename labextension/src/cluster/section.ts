/** Slots and queue: one line, which opens while a trial of the experiment waits, or by hand. */
import type { ICluster } from '../model/state.js';
import { h, setHidden, setText } from '../dom/dom.js';
import { Queue } from './queue.js';
import { SlotBars } from './slots.js';
import type { ITrans } from '../model/trans.js';

export class ClusterSection {
  readonly node: HTMLDetailsElement;

  constructor(trans: ITrans) {
    this._bars = new SlotBars(trans);
    this._queue = new Queue(trans);
    const summary = h('summary', {}, h('b', {}, trans.__('Slots and queue')), ' ', this._line);
    summary.addEventListener('click', () => {
      this._choice = !this.node.open; // as it will be
    });
    this.node = h(
      'details.det-cluster',
      { hidden: true },
      summary,
      this._bars.node,
      this._queue.node
    );
    this.node.addEventListener('toggle', () => this._draw());
  }

  update(cluster: ICluster | null): void {
    this._cluster = cluster;
    setHidden(this.node, cluster === null);
    setText(this._line, cluster?.summary ?? '');
    const isWaiting = cluster?.is_waiting ?? false;
    if (isWaiting && !this._wasWaiting) {
      this._choice = null; // it is another wait than the one that the reader has folded away
    }
    this._wasWaiting = isWaiting;
    this.node.open = this._choice ?? isWaiting;
    this._draw();
  }

  /** Draw nothing while it is folded away. */
  private _draw(): void {
    if (this._cluster !== null && this.node.open) {
      this._bars.update(this._cluster.pools);
      this._queue.update(this._cluster);
    }
  }

  private readonly _bars: SlotBars;
  private readonly _queue: Queue;
  private readonly _line = h('span');
  private _cluster: ICluster | null = null;
  private _choice: boolean | null = null;
  private _wasWaiting = false;
}
