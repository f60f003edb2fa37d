/** One chart of metrics on the page. */
import type uPlot from 'uplot';

import { placeText } from './axes.js';
import { Figure } from './figure.js';
import { formatNumber } from '../model/format.js';
import type { Axis } from '../model/viewsettings.js';
import { Legend } from './legend.js';
import type { IChart } from '../model/state.js';
import { isLogY, plotColumns, plotOptions, plotShape, type IChartFrame } from './plot.js';
import { readTheme, type ITheme } from '../dom/theme.js';
import type { ITrans } from '../model/trans.js';
import type { Range } from './uplotparts.js';

export interface IChartOptions {
  trans: ITrans;
  /** Charts with the same key show the same step under the pointer. */
  syncKey: string;
  onZoom: (range: Range | null) => void;
}

/** The part of a chart that views use; tests implement it by something simpler. */
export interface IChartView {
  readonly node: HTMLElement;
  update(chart: IChart, frame: IChartFrame): void;
  restyle(): void;
  dispose(): void;
}

interface IShownChart {
  chart: IChart;
  frame: IChartFrame;
}

export class MetricChart extends Figure<IShownChart> implements IChartView {
  constructor(private readonly _chartOptions: IChartOptions) {
    const legend = new Legend(_chartOptions.trans);
    super(_chartOptions.trans, legend.node);
    this._legend = legend;
  }

  update(chart: IChart, frame: IChartFrame): void {
    const hasValue = chart.series.some(one => one.lowest !== null && one.steps.length > 0);
    this._show(
      { chart, frame },
      {
        title: chart.title,
        description: this._description(chart, frame),
        empty: hasValue ? '' : this._trans.__('no finite value')
      }
    );
    this._legend.update(chart, frame.chosen);
    this._draw();
    this._readCursor();
  }

  protected _shapeOf({ chart, frame }: IShownChart): string {
    return plotShape(chart, frame);
  }

  protected _columnsOf({ chart, frame }: IShownChart): uPlot.AlignedData {
    return plotColumns(chart, frame);
  }

  protected _options(width: number): uPlot.Options {
    const shown = (): IShownChart => this._shown as IShownChart;
    return plotOptions(
      {
        chart: () => shown().chart,
        frame: () => shown().frame,
        theme: () => this._theme as ITheme,
        syncKey: this._chartOptions.syncKey,
        onCursor: () => this._readCursor(),
        onZoom: range => this._onZoom(range)
      },
      width
    );
  }

  protected _read(step: number | null): string {
    this._legend.read(step);
    const { chart, frame } = this._shown as IShownChart;
    if (step === null) {
      return this._axisText(chart, frame);
    }
    const parts = [placeText(frame.axis, step, this._trans)];
    const { stepsPerEpoch } = frame;
    if (stepsPerEpoch !== null) {
      parts.push(this._trans.__('epoch %1', (step / stepsPerEpoch).toFixed(1)));
    }
    return parts.join(' · ');
  }

  protected _legendText(): string {
    return this._legend.text();
  }

  protected _readTheme(): void {
    this._theme = readTheme(this.node);
  }

  protected _range(): Range {
    return this._shown?.frame.range ?? [0, 1];
  }

  protected _onZoom(range: Range | null): void {
    this._chartOptions.onZoom(range);
  }

  private _description(chart: IChart, frame: IChartFrame): string {
    return [
      this._trans.__('%1 %2', chart.title, this._axisText(chart, frame)),
      ...chart.series
        .filter(one => !one.is_faint)
        .map(one => `${one.label} ${formatNumber(one.last)}`),
      this._trans.__('arrow keys read it step by step')
    ].join(', ');
  }

  private _axisText(chart: IChart, frame: IChartFrame): string {
    const trans = this._trans;
    const names: Record<Axis, string> = {
      step: trans.__('by batch'),
      epoch: trans.__('by epoch'),
      time: trans.__('by time')
    };
    const log = isLogY(chart, frame) ? ` · ${trans.__('log, above 0 only')}` : '';
    return names[frame.axis] + log;
  }

  private readonly _legend: Legend;
  private _theme: ITheme | undefined;
}
