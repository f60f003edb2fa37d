/** Made-up series, as the kernel would answer them. */
import type { AskSeries, ISeriesQuestion } from '../src/series/seriespages.js';
import type { ISeries, ISeriesPage } from '../src/model/answers.js';

export function measured(changes: Partial<ISeries> & { mid: number[] }): ISeries {
  const { mid } = changes;
  return {
    source: 'rank:0',
    name: 'forward',
    title: 'forward, with the loss',
    unit: 's',
    x: mid.map((_, i) => 1000 + i),
    low: mid,
    high: mid,
    missing: '',
    ...changes
  };
}

export function seriesPage(series: ISeries[], changes: Partial<ISeriesPage> = {}): ISeriesPage {
  return { series, began_at: 1000, ended_at: null, interval_s: 1, ...changes };
}

/** The kernel: answers with these pages, one after the other, and keeps what it was asked for. */
export class SeriesKernel {
  readonly asked: ISeriesQuestion[] = [];

  constructor(private readonly _pages: (ISeriesPage | Error)[]) {}

  readonly ask: AskSeries = question => {
    this.asked.push(question);
    const next = this._pages.shift();
    if (next === undefined) {
      return new Promise(() => undefined); // it is busy
    }
    return next instanceof Error ? Promise.reject(next) : Promise.resolve({ page: next });
  };
}
