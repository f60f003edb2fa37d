/** Slots and queue, folded to one line unless a trial of the experiment waits or the user opens it. */
import type { ISlotsAndQueue, IQueueRow } from '../model/state.js';
import { h, setHidden, setText, rebuilder } from '../dom/dom.js';
import { SlotBars } from './slotbars.js';
import type { ITrans } from '../model/trans.js';
import { icon } from '../dom/icons.js';

export class ClusterSection {
  readonly node: HTMLDetailsElement;

  constructor(trans: ITrans) {
    this._bars = new SlotBars(trans);
    this._queue = new Queue(trans);
    const summary = h('summary', {}, h('b', {}, trans.__('Slots and queue')), ' ', this._line);
    summary.addEventListener('click', () => {
      this._choice = !this.node.open; // the state after the click
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

  update(cluster: ISlotsAndQueue | null): void {
    this._cluster = cluster;
    setHidden(this.node, cluster === null);
    setText(this._line, cluster?.summary ?? '');
    const isWaiting = cluster?.is_waiting ?? false;
    if (isWaiting && !this._wasWaiting) {
      this._choice = null; // another reason than the one that the user has folded away
    }
    this._wasWaiting = isWaiting;
    this.node.open = this._choice ?? isWaiting;
    this._draw();
  }

  /** Draw unless it is folded. */
  private _draw(): void {
    if (this._cluster !== null && this.node.open) {
      this._bars.update(this._cluster.pools);
      this._queue.update(this._cluster);
    }
  }

  private readonly _bars: SlotBars;
  private readonly _queue: Queue;
  private readonly _line = h('span');
  private _cluster: ISlotsAndQueue | null = null;
  private _choice: boolean | null = null;
  private _wasWaiting = false;
}

interface IQueueData {
  rows: IQueueRow[];
  total: number;
  hasPools: boolean;
}

export class Queue {
  readonly node = h('section.det-queue');

  constructor(private readonly _trans: ITrans) {
    this.node.setAttribute('aria-label', _trans.__('Queue'));
  }

  update(cluster: ISlotsAndQueue): void {
    this._draw({
      rows: cluster.queue,
      total: cluster.num_waiting,
      hasPools: cluster.pools.length > 1
    });
  }

  private readonly _draw = rebuilder(this.node, ({ rows, total, hasPools }: IQueueData) => {
    const { _trans: trans } = this;
    const hidden = total - rows.length;
    if (rows.length === 0 && hidden <= 0) {
      return [h('p.det-quiet', {}, trans.__('No trial waits.'))];
    }
    return [
      h('b', {}, trans.__('Queue')),
      h('ol.det-queue-rows', {}, ...rows.map(row => this._row(row, hasPools))),
      hidden > 0 ? h('p.det-quiet', {}, trans._n('and %1 more', 'and %1 more', hidden)) : null
    ];
  });

  private _row(row: IQueueRow, hasPools: boolean): HTMLElement {
    const { _trans: trans } = this;
    const facts = [
      trans.__('trial %1', row.trial_id),
      row.slots,
      ...(hasPools ? [trans.__('pool %1', row.pool)] : []),
      trans.__('since %1', row.since)
    ];
    const mark = h('span.det-own', {}, icon('own'), trans.__('this experiment'));
    return h(
      'li.det-queue-row',
      { 'data-own': row.is_own },
      h('span.det-place', {}, String(row.place)),
      h(
        'div',
        {},
        h(
          'div.det-line',
          {},
          h('b', {}, row.experiment),
          row.is_own ? mark : null,
          h('span.det-quiet', {}, facts.join(' · '))
        ),
        h('div', {}, row.sentence)
      )
    );
  }
}
