/** Names the curves of a chart, with their newest values or those under the cursor. */
import { h, setText } from './dom.js';
import { formatNumber } from './format.js';
import { placeAt, type IChart, type ISeries } from './model.js';
import { isDashed, NUM_COLORS } from './theme.js';
import type { ITrans } from './trans.js';

export class Legend {
  readonly node = h('div.det-legend');

  constructor(private readonly _trans: ITrans) {}

  /** Name the curves; `read` then shows their values. */
  update(chart: IChart): void {
    const shape = JSON.stringify([
      chart.hidden,
      chart.series.map(one => [one.label, one.kind, one.look])
    ]);
    this._series = chart.series;
    if (shape !== this._shape) {
      this._shape = shape;
      this._rebuild(chart);
    }
  }

  /** Show the values at `step`, or for `null` the newest. */
  read(step: number | null): void {
    this._series.forEach((one, i) => {
      const place = step === null ? -1 : placeAt(one, step);
      const value = step === null ? formatNumber(one.last) : valueAt(one, place);
      setText(this._values[i] as Element, value);
    });
  }

  /** What it says, for reading aloud. */
  text(): string {
    return this._series
      .map((one, i) => `${one.label} ${this._values[i]?.textContent ?? ''}`)
      .join(', ');
  }

  private _rebuild(chart: IChart): void {
    this._values = chart.series.map(() => h('b'));
    const items = chart.series.map((one, place) =>
      h(
        'span.det-legend-item',
        {},
        h('i', {
          class: `det-key det-mod-${one.kind}${isDashed(one.look) ? ' det-mod-dashed' : ''}`,
          'data-series': one.look % NUM_COLORS
        }),
        one.label,
        this._values[place] as HTMLElement
      )
    );
    if (chart.hidden > 0) {
      items.push(
        h(
          'span.det-quiet',
          {},
          this._trans._n('%1 older curve not shown', '%1 older curves not shown', chart.hidden)
        )
      );
    }
    this.node.replaceChildren(...items);
  }

  private _series: ISeries[] = [];
  private _values: HTMLElement[] = [];
  private _shape = '';
}

function valueAt(one: ISeries, place: number): string {
  return place < 0 ? '–' : formatNumber(one.values[place] ?? null);
}
