/** One chart: uPlot, wrapped here and nowhere else, with a legend and a keyboard cursor. */
import uPlot from 'uplot';

import { h, setAttribute, setHidden, setText } from './dom.js';
import { formatNumber } from './format.js';
import { Legend } from './legend.js';
import { smoothed, smoothingSpan, toColumns, type Columns, type IChart } from './model.js';
import { colorOf, isDashed, readTheme, type ITheme } from './theme.js';
import type { ITrans } from './trans.js';

/** What all charts of a view have in common. */
export interface IChartFrame {
  /** The steps to show: the whole run, or what the reader zoomed into. */
  range: readonly [number, number];
  smooth: boolean;
  stepsPerEpoch: number | null;
}

export interface IChartOptions {
  trans: ITrans;
  /** Charts with the same key show the same step under the pointer. */
  syncKey: string;
  onZoom: (range: [number, number] | null) => void;
}

/** What the view needs of a chart; tests put something simpler in its place. */
export interface IChartView {
  readonly node: HTMLElement;
  update(chart: IChart, frame: IChartFrame): void;
  restyle(): void;
  dispose(): void;
}

const HEIGHT = 168;
/** More points than this would hide the line that joins them. */
const MAX_DOTS = 60;
const STEP_INCREMENTS = [1, 2, 5].flatMap((digit, _, all) =>
  Array.from({ length: 10 }, (_unused, power) => (all[all.indexOf(digit)] as number) * 10 ** power)
);

/** Axis numbers are round already; this only keeps them short. */
function formatTick(value: number): string {
  const size = Math.abs(value);
  const short = Number(value.toPrecision(6));
  return size !== 0 && (size < 1e-4 || size >= 1e6) ? short.toExponential() : String(short);
}

export class MetricChart implements IChartView {
  readonly node: HTMLElement;

  constructor(private readonly _options: IChartOptions) {
    this._legend = new Legend(_options.trans);
    this.node = h(
      'figure.det-chart',
      {},
      h('figcaption.det-chart-head', {}, this._title, this._readout),
      this._legend.node,
      this._host,
      this._nothing,
      this._spoken
    );
    setText(this._nothing, _options.trans.__('no finite value'));
    this._host.addEventListener('keydown', event => this._onKey(event));
    this._sizes = new ResizeObserver(() => this._resize());
    this._sizes.observe(this._host);
  }

  update(chart: IChart, frame: IChartFrame): void {
    this._chart = chart;
    this._frame = frame;
    setText(this._title, chart.title);
    this._legend.update(chart);
    const { trans } = this._options;
    setAttribute(
      this._host,
      'aria-label',
      [
        trans.__('%1 by step', chart.title),
        ...chart.series.map(one => `${one.label} ${formatNumber(one.last)}`),
        trans.__('arrow keys read it step by step')
      ].join(', ')
    );
    const hasValue = chart.series.some(one => one.lowest !== null);
    setHidden(this._nothing, hasValue);
    setHidden(this._host, !hasValue);
    if (hasValue) {
      this._draw();
    }
  }

  /** Take over changed colours. */
  restyle(): void {
    if (this._plot !== undefined) {
      this._theme = readTheme(this.node);
      this._plot.redraw(false, true);
    }
  }

  dispose(): void {
    this._sizes.disconnect();
    this._plot?.destroy();
    this._plot = undefined;
  }

  private _draw(): void {
    const { chart, frame } = this._shown();
    const width = this._host.clientWidth;
    if (width === 0) {
      return; // not laid out: the ResizeObserver calls again
    }
    const shape = JSON.stringify([
      frame.smooth,
      chart.series.map(one => [
        one.kind,
        smoothingSpan(one) > 0,
        one.steps.length > MAX_DOTS,
        one.steps.length < 2
      ])
    ]);
    const data = this._columns() as uPlot.AlignedData;
    if (this._plot === undefined || shape !== this._shape) {
      this._plot?.destroy();
      this._shape = shape;
      this._theme = readTheme(this.node);
      this._plot = new uPlot(this._plotOptions(width), data, this._host);
    } else {
      this._plot.setData(data, false);
    }
    const [min, max] = frame.range;
    this._plot.setScale('x', { min, max: Math.max(max, min + 1) });
  }

  private _shown(): { chart: IChart; frame: IChartFrame } {
    return { chart: this._chart as IChart, frame: this._frame as IChartFrame };
  }

  /** A smoothed curve has two columns: what was measured, and its average. */
  private _columns(): Columns {
    const { chart, frame } = this._shown();
    const series = chart.series.flatMap(one => {
      const span = frame.smooth ? smoothingSpan(one) : 0;
      return span > 0 ? [one, { ...one, values: smoothed(one, span) }] : [one];
    });
    return toColumns(series);
  }

  private _series(): uPlot.Series[] {
    const { chart, frame } = this._shown();
    return chart.series.flatMap((one, place) => {
      const stroke = (): string => colorOf(this._theme as ITheme, place);
      const dash = isDashed(place) ? { dash: [6, 4] } : {};
      const dots = one.kind === 'points' ? one.steps.length <= MAX_DOTS : one.steps.length < 2;
      const line: uPlot.Series = {
        ...dash,
        stroke,
        width: one.kind === 'points' ? 2 : 1.5,
        points: { show: dots, size: 6, fill: stroke, stroke, width: 0 }
      };
      if (!frame.smooth || smoothingSpan(one) === 0) {
        return [line];
      }
      return [
        { ...line, width: 1, alpha: 0.32 },
        { ...line, width: 2 }
      ];
    });
  }

  private _plotOptions(width: number): uPlot.Options {
    const text = (): string => (this._theme as ITheme).text;
    const grid = { stroke: (): string => (this._theme as ITheme).grid, width: 1 };
    const axis = { stroke: text, grid, font: this._theme?.font ?? '11px sans-serif' };
    return {
      width,
      height: HEIGHT,
      padding: [8, 10, 0, 0],
      legend: { show: false },
      scales: { x: { time: false, auto: false } },
      series: [{}, ...this._series()],
      axes: [
        {
          ...axis,
          size: 26,
          gap: 4,
          space: 56,
          ticks: { show: false },
          incrs: STEP_INCREMENTS,
          values: (_plot, ticks) => ticks.map(formatTick)
        },
        {
          ...axis,
          gap: 4,
          space: 32,
          ticks: { show: false },
          values: (_plot, ticks) => ticks.map(formatTick),
          size: (_plot, values) => 14 + 6.5 * Math.max(3, ...(values ?? []).map(v => v.length))
        }
      ],
      cursor: {
        y: false,
        drag: { x: true, y: false, setScale: false },
        sync: { key: this._options.syncKey, scales: ['x', null] },
        dataIdx: (plot, series, place) => placeWithPoint(plot, series, place),
        points: { size: 7, width: 0, fill: (plot, i) => colorAt(plot, i) },
        bind: {
          dblclick: () => () => {
            this._options.onZoom(null);
            return null;
          }
        }
      },
      hooks: {
        setCursor: [plot => this._read(plot.cursor.idx ?? null)],
        setSelect: [plot => this._zoom(plot)]
      }
    };
  }

  private _zoom(plot: uPlot): void {
    const { left, width } = plot.select;
    if (width > 4) {
      this._options.onZoom([plot.posToVal(left, 'x'), plot.posToVal(left + width, 'x')]);
    }
    if (width > 0) {
      plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    }
  }

  /** Show the values at a place of the x column; `null` shows the newest. */
  private _read(place: number | null): void {
    const { trans } = this._options;
    const step = place === null ? undefined : this._plot?.data[0][place];
    if (step === undefined) {
      setText(this._readout, '');
      this._legend.read(null);
      return;
    }
    const parts = [trans.__('step %1', step)];
    const { stepsPerEpoch } = this._shown().frame;
    if (stepsPerEpoch !== null) {
      parts.push(trans.__('epoch %1', (step / stepsPerEpoch).toFixed(1)));
    }
    setText(this._readout, parts.join(' · '));
    this._legend.read(step);
  }

  private _onKey(event: KeyboardEvent): void {
    const plot = this._plot;
    const last = (plot?.data[0].length ?? 0) - 1;
    const now = plot?.cursor.idx ?? last;
    const places: Record<string, number> = {
      ArrowLeft: now - 1,
      ArrowRight: now + 1,
      Home: 0,
      End: last
    };
    const wanted = places[event.key];
    if (plot === undefined || wanted === undefined) {
      return;
    }
    event.preventDefault();
    event.stopPropagation(); // the notebook moves between cells by these keys
    const place = Math.min(last, Math.max(0, wanted));
    const left = plot.valToPos(plot.data[0][place] as number, 'x');
    plot.setCursor({ left, top: HEIGHT / 2 }, true, true);
    setText(this._spoken, `${this._readout.textContent}: ${this._legend.text()}`);
  }

  private _resize(): void {
    const width = this._host.clientWidth;
    if (width === 0 || this._chart === undefined) {
      return;
    }
    if (this._plot === undefined) {
      this._draw();
    } else if (this._plot.width !== width) {
      this._plot.setSize({ width, height: HEIGHT });
    }
  }

  private readonly _title = h('span.det-chart-title');
  private readonly _readout = h('span.det-quiet');
  private readonly _legend: Legend;
  private readonly _host = h('div.det-plot', { role: 'img', tabindex: 0 });
  private readonly _nothing = h('p.det-empty', { hidden: true });
  private readonly _spoken = h('div.det-unseen', { 'aria-live': 'polite' });
  private readonly _sizes: ResizeObserver;
  private _chart: IChart | undefined;
  private _frame: IChartFrame | undefined;
  private _plot: uPlot | undefined;
  private _shape = '';
  private _theme: ITheme | undefined;
}

function colorAt(plot: uPlot, series: number): string {
  const stroke = plot.series[series]?.stroke;
  return typeof stroke === 'function' ? String(stroke(plot, series)) : 'currentColor';
}

/** The newest point of a series at or before a place: sparse series are read between points. */
function placeWithPoint(plot: uPlot, series: number, place: number): number {
  const values = plot.data[series] as (number | null | undefined)[];
  let i = place;
  while (i > 0 && values[i] === undefined) {
    i -= 1;
  }
  return i;
}
