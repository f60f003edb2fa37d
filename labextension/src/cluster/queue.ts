/** The trials that wait for slots, in order, and why; those of this experiment are marked. */
import type { ICluster, IQueueRow } from '../model/state.js';
import { h, rebuilder } from '../dom/dom.js';
import { icon } from '../dom/icons.js';
import type { ITrans } from '../model/trans.js';

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

  update(cluster: ICluster): void {
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
