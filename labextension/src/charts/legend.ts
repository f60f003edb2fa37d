/** The legend of a chart: its curves with their newest values or those at the cursor. */
import { h, setText } from '../dom/dom.js';
import { formatNumber } from '../model/format.js';
import { placeAt } from './curves.js';
import type { IChart, IChartSeries } from '../model/state.js';
import { isDashed, NUM_COLORS } from '../dom/theme.js';
import type { ITrans } from '../model/trans.js';

export class Legend {
  readonly node = h('div.det-legend');

  constructor(private readonly _trans: ITrans) {}

  /** List the curves that have a colour; `read` shows their values. */
  update(chart: IChart, chosen: number | null = null): void {
    this._series = chart.series.filter(one => !one.is_faint);
    const numFaint = chart.series.length - this._series.length;
    const shape = JSON.stringify([
      chart.hidden,
      numFaint,
      chosen,
      this._series.map(one => [one.label, one.kind, one.look])
    ]);
    if (shape !== this._shape) {
      this._shape = shape;
      this._rebuild(chosen, numFaint, chart.hidden);
    }
  }

  /** Show the values at `step`; `null`: the newest. */
  read(step: number | null): void {
    this._series.forEach((one, i) => {
      const place = step === null ? -1 : placeAt(one, step);
      const value = step === null ? formatNumber(one.last) : valueAt(one, place);
      setText(this._values[i] as Element, value);
    });
  }

  /** The legend as text, for screen readers. */
  text(): string {
    return this._series
      .map((one, i) => `${one.label} ${this._values[i]?.textContent ?? ''}`)
      .join(', ');
  }

  private _rebuild(chosen: number | null, numFaint: number, numHidden: number): void {
    this._values = this._series.map(() => h('b'));
    const items = this._series.map((one, place) =>
      h(
        'span.det-legend-item',
        { 'data-chosen': one.trial_id === chosen },
        h('i', {
          class: `det-key det-mod-${one.kind}${isDashed(one.look) ? ' det-mod-dashed' : ''}`,
          'data-series': one.look % NUM_COLORS
        }),
        h('span', {}, one.label),
        this._values[place] as HTMLElement
      )
    );
    if (numFaint + numHidden > 0) {
      items.push(h('span.det-quiet', {}, this._othersText(numFaint, numHidden)));
    }
    this.node.replaceChildren(...items);
  }

  private _othersText(numFaint: number, numHidden: number): string {
    const trans = this._trans;
    const faint = trans._n('%1 other trial is faint', '%1 other trials are faint', numFaint);
    const hidden = trans._n('%1 not drawn', '%1 not drawn', numHidden);
    return [numFaint > 0 ? faint : '', numHidden > 0 ? hidden : '']
      .filter(text => text !== '')
      .join(', ');
  }

  private _series: IChartSeries[] = [];
  private _values: HTMLElement[] = [];
  private _shape = '';
}

function valueAt(one: IChartSeries, place: number): string {
  return place < 0 ? '–' : formatNumber(one.values[place] ?? null);
}
