import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';

import { LiveSeries } from '../src/series/live.js';
import { mergePages, spanOf, tailOf } from '../src/series/seriespages.js';
import { measured, SeriesKernel, seriesPage } from './seriessamples.js';
import type { ISeriesPage } from '../src/model/answers.js';

describe('newer points', () => {
  const kept = seriesPage([measured({ mid: [1, 2, 3] }), measured({ name: 'rest', mid: [9] })]);

  it('take the place of the columns that were incomplete', () => {
    const tail = measured({ x: [1002, 1003], mid: [4, 5] });
    const [forward, rest] = mergePages(kept, seriesPage([tail])).series;
    expect(forward?.x).toEqual([1000, 1001, 1002, 1003]);
    expect(forward?.mid).toEqual([1, 2, 4, 5]);
    expect(rest?.mid).toEqual([9]); // a rank that has ended keeps its points
  });

  it('bring new series, and keep what a series had when it has nothing new', () => {
    const section = measured({ name: 'section.augment', mid: [1] });
    const nothing = measured({ mid: [], missing: 'the GPU is lost' });
    const page = mergePages(kept, seriesPage([section, nothing]));
    expect(page.series.map(one => [one.name, one.mid])).toEqual([
      ['forward', [1, 2, 3]],
      ['rest', [9]],
      ['section.augment', [1]]
    ]);
  });

  it('are asked for from the third last column on, all anew when there are twice too many', () => {
    const long = (n: number): ISeriesPage =>
      seriesPage([measured({ mid: Array.from({ length: n }, (_, i) => i) })]);
    expect(tailOf(long(100), 600)).toEqual({ since: 1097, columns: 600 });
    expect(tailOf(long(1201), 600)).toBeNull();
    expect(tailOf(seriesPage([]), 600)).toBeNull();
    const coarse = seriesPage([measured({ x: [1000, 1010, 1020, 1030], mid: [1, 1, 1, 1] })]);
    expect(tailOf(coarse, 600)).toEqual({ since: 1010, columns: 6 });
  });

  it('span what all series span, if there is any', () => {
    expect(spanOf(kept)).toEqual([1000, 1002]);
    expect(spanOf(seriesPage([measured({ mid: [] })]))).toBeNull();
  });
});

describe('series that are followed', () => {
  const timings = { trial_id: 3, of: 'timings', axis: 'time' } as const;
  let pages: ISeriesPage[];
  let said: string[];
  let live: LiveSeries;

  function follow(...answers: (ISeriesPage | Error)[]): SeriesKernel {
    const kernel = new SeriesKernel(answers);
    [pages, said] = [[], []];
    live = new LiveSeries({
      ask: kernel.ask,
      slowHint: 'The kernel is busy.',
      onPage: page => pages.push(page),
      onNotice: text => said.push(text)
    });
    live.follow(timings);
    live.setVisible(true);
    return kernel;
  }

  beforeEach(() => vi.useFakeTimers());
  afterEach(() => {
    live.dispose();
    vi.useRealTimers();
  });
  const wait = (ms: number): Promise<unknown> => vi.advanceTimersByTimeAsync(ms);

  it('come whole, then once a second only what is new', async () => {
    const tail = seriesPage([measured({ x: [1002, 1003], mid: [3, 4] })]);
    const kernel = follow(seriesPage([measured({ mid: [1, 2, 3] })]), tail);
    await wait(999);
    expect(kernel.asked.map(one => one.query.since)).toEqual([null]);
    await wait(2);
    expect(kernel.asked.map(one => one.query.since)).toEqual([null, 1000]);
    expect(pages.at(-1)?.series[0]?.mid).toEqual([1, 2, 3, 4]);
  });

  it('are not asked for while they cannot be seen', async () => {
    const kernel = follow(seriesPage([]), seriesPage([]));
    await wait(0);
    live.setVisible(false);
    await wait(60_000);
    expect(kernel.asked.length).toBe(1);
    live.setVisible(true);
    await wait(0);
    expect(kernel.asked.length).toBe(2);
  });

  it('are asked for once more when the trial has ended, then never', async () => {
    const kernel = follow(...Array.from({ length: 9 }, () => seriesPage([measured({ mid: [1] })])));
    await wait(0);
    live.setEnded(true);
    await wait(60_000);
    expect(kernel.asked.length).toBe(2);
    live.setVisible(false);
    live.setVisible(true);
    expect(kernel.asked.length).toBe(2);
  });

  it('come in detail for a part of the axis, and the whole is back at once', async () => {
    const whole = seriesPage([measured({ mid: [1, 2, 3] })]);
    const kernel = follow(whole, seriesPage([measured({ x: [1000.5], mid: [1.5] })]));
    await wait(0);
    live.setRange([1000, 1001]);
    await wait(0);
    expect(kernel.asked.at(-1)?.query).toMatchObject({ since: 1000, until: 1001 });
    expect(pages.at(-1)?.series[0]?.mid).toEqual([1.5]);
    await wait(10_000);
    expect(kernel.asked.length).toBe(2); // nothing new comes there
    live.setRange(null);
    expect(pages.at(-1)).toEqual(whole);
  });

  it('say why they do not come, and are asked for again', async () => {
    const kernel = follow(new Error('no trial 3'), seriesPage([]));
    await wait(0);
    expect(said.at(-1)).toBe('no trial 3');
    await wait(5000);
    expect(kernel.asked.length).toBe(2);
    expect(said.at(-1)).toBe('');
  });

  it('hint at what is in the way of a slow answer, and ask again if it is lost', async () => {
    const kernel = follow();
    await wait(3000);
    expect(said).toEqual(['The kernel is busy.']);
    await wait(27_001);
    expect(kernel.asked.length).toBe(2);
  });

  it('begin anew for another trial; an answer for the one before is not shown', async () => {
    const kernel = follow(seriesPage([measured({ mid: [1] })]), seriesPage([]));
    live.follow({ ...timings, trial_id: 4 });
    await wait(0);
    expect(kernel.asked.map(one => one.trial_id)).toEqual([3, 4]);
    expect(pages.map(page => page.series.length)).toEqual([0]);
  });
});
