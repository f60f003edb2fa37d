import { expect, it } from 'vitest';

import { stacked } from '../src/charts/picture.js';
import { shownTitle, shownTrial } from '../src/model/showntrial.js';
import { english } from '../src/model/trans.js';
import { PARTS, type ISearchState } from '../src/model/state.js';
import { formatMeasure, formatSeconds } from '../src/model/units.js';
import { aligned } from '../src/series/columns.js';
import { inParts, type ISeriesQuestion } from '../src/series/seriespages.js';
import { missingOf, systemPictures } from '../src/tabs/systempictures.js';
import { lookOfPart, partRows, ranksOf } from '../src/timings/batchparts.js';
import { timingPictures } from '../src/timings/timingpictures.js';
import { row, search, state, trial } from './samples.js';
import { measured, SeriesKernel, seriesPage } from './seriessamples.js';

it('draws no two parts of a batch alike', () => {
  const looks = PARTS.map(name => JSON.stringify(lookOfPart(name)));
  expect(new Set(looks).size).toBe(PARTS.length);
});

it('stacks parts in their order, those without time left out, and keeps gaps', () => {
  const page = seriesPage([
    measured({ name: 'rest', mid: [1, 1] }),
    measured({ name: 'forward', mid: [2, 3] }),
    measured({ name: 'checkpoint', mid: [0, 0] }),
    measured({ name: 'forward', source: 'rank:1', mid: [9, 9] })
  ]);
  const [time] = timingPictures(page, 'rank:0', 1000, english);
  expect(time?.x).toEqual([0, 1]);
  expect(time?.curves.map(one => one.values)).toEqual([
    [2, 3],
    [1, 1]
  ]);
  expect(
    stacked([
      [2, null, 3],
      [1, null, null]
    ])
  ).toEqual([
    [2, null, 3],
    [3, null, 3]
  ]);
});

it('puts ranks side by side, each divided into its parts', () => {
  const page = seriesPage([
    measured({ source: 'rank:10', name: 'forward', mid: [3] }),
    measured({ source: 'rank:2', name: 'dataloader_next', mid: [1] }),
    measured({ source: 'rank:2', name: 'forward', mid: [3] })
  ]);
  const ranks = ranksOf(page);
  expect(ranks.map(one => [one.rank, one.total])).toEqual([
    [2, 4],
    [10, 3]
  ]);
  expect(ranks[0]?.parts.map(one => one.name)).toEqual(['dataloader_next', 'forward']);
});

it('tabulates parts with their percentiles; own sections have no share of their own', () => {
  const page = seriesPage([
    measured({ name: 'forward', mid: [3] }),
    measured({ name: 'forward.p95', mid: [5] }),
    measured({ name: 'rest', mid: [1] }),
    measured({ name: 'section.augment', title: 'augment', mid: [2] }),
    measured({ name: 'section.augment.p95', mid: [4] })
  ]);
  const rows = partRows(page, 'rank:0');
  expect(rows.map(one => [one.name, one.share, one.mean, one.statistics[1]])).toEqual([
    ['forward', 0.75, 3, 5],
    ['rest', 0.25, 1, null],
    ['section.augment', null, 2, 4]
  ]);
});

it('aligns series with points at different times, with a gap where one pauses', () => {
  const one = measured({ x: [0, 1, 2, 3, 9, 10], mid: [1, 1, 1, 1, 2, 2] });
  const other = measured({
    x: [0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5],
    mid: new Array<number>(9).fill(5)
  });
  const { x, mid } = aligned([one, other]);
  expect(x.length).toBe(15);
  expect(mid[0]?.[1]).toBeUndefined(); // between two points, the line goes on
  expect(mid[0]?.[x.indexOf(4.5)]).toBeNull();
  expect(mid[0]?.[x.indexOf(9)]).toBe(2);
});

it('leaves a gap in all series where none has values, as between two runs', () => {
  const one = measured({ x: [0, 1, 2, 60, 61], mid: [1, 1, 1, 2, 2] });
  expect(aligned([one]).x).toEqual([0, 1, 2, 31, 60, 61]);
  expect(aligned([one]).mid[0]).toEqual([1, 1, 1, null, 2, 2]);
});

it('draws a picture for each measure, with a curve for each GPU, those beyond eight faint', () => {
  const gpu = (i: number, name: string, unit: string): ReturnType<typeof measured> =>
    measured({ source: `gpu:GPU-${i}`, name, title: name, unit, mid: [1, 2] });
  const nine = Array.from({ length: 9 }, (_, i) => gpu(i, 'gpu_util', '%'));
  const page = seriesPage([...nine, gpu(0, 'gpu_power', 'W')]);
  const [util, power] = systemPictures(page, 1000, english);
  expect(util?.curves.map(one => one.label).slice(0, 2)).toEqual(['GPU 0', 'GPU 1']);
  expect(util?.curves.filter(one => one.isFaint).length).toBe(1);
  expect(util?.bounds).toEqual([0, 100]);
  expect(power?.curves.length).toBe(1);
  expect(power?.curves[0]?.band).toBeDefined();
});

it('says once why measures have no values, and of which GPU where others have them', () => {
  const lost = { mid: [], missing: 'the GPU is lost' };
  const page = seriesPage([
    measured({ source: 'rank:0', name: 'cpu_util', title: 'CPU', mid: [1] }),
    measured({ source: 'gpu:GPU-a', name: 'gpu_util', title: 'GPU utilization', mid: [1] }),
    measured({ source: 'gpu:GPU-b', name: 'gpu_util', title: 'GPU utilization', ...lost }),
    measured({ source: 'gpu:GPU-b', name: 'gpu_power', title: 'GPU power', ...lost })
  ]);
  expect(missingOf(page, english)).toEqual([
    { reason: 'the GPU is lost', what: ['GPU utilization (GPU 1)', 'GPU power'] }
  ]);
});

it('says that the ranks have no samples, where only their machine has', () => {
  const page = seriesPage([measured({ source: 'host', name: 'memory_free', mid: [1] })]);
  const [only] = missingOf(page, english);
  expect(only?.reason).toContain('profiling.enabled: false');
});

it('asks for each group of names by itself and puts the answers together', async () => {
  const kernel = new SeriesKernel([
    seriesPage([measured({ name: 'cpu_util', mid: [1] })]),
    seriesPage([measured({ name: 'gpu_util', mid: [2] })])
  ]);
  const question: ISeriesQuestion = {
    trial_id: 3,
    query: {
      ...{ of: 'system', axis: 'time', names: null, sources: null },
      ...{ since: null, until: null, columns: 600 }
    }
  };
  const { page } = await inParts(kernel.ask, [['cpu_util'], ['gpu_util']])(question);
  expect(kernel.asked.map(one => one.query.names)).toEqual([['cpu_util'], ['gpu_util']]);
  expect(page.series.map(one => one.name)).toEqual(['cpu_util', 'gpu_util']);
});

it('writes values with their units', () => {
  const cases: [number, string, string][] = [
    [0.0123, 's', '12.3 ms'],
    [0.9999, 's', '1 s'],
    [2.5e-5, 's', '25 µs'],
    [41e9, 'bytes/s', '41 GB/s'],
    [77.234, '%', '77.2 %'],
    [1755.4, 'MHz', '1755 MHz'],
    [61, '°C', '61 °C'],
    [0, '1/s', '0/s']
  ];
  expect(cases.map(([value, unit]) => formatMeasure(value, unit))).toEqual(cases.map(c => c[2]));
  expect(formatSeconds(75)).toBe('75 s');
});

it('shows in the tabs about one trial the best of a search, unless another trains or is chosen', () => {
  const rows = [
    row({ id: 7, best: 0.5, status: 'completed' }),
    row({ id: 9, best: 0.9, status: 'completed' }),
    row({ id: 11, best: null, status: 'error' })
  ];
  const shown = (changes: Partial<ISearchState> = {}, all = rows): [number | undefined, string] => {
    const view = state({ trials: [], search: search(all, changes) });
    return [shownTrial(view)?.id, shownTitle(view, english)];
  };
  expect(shown()).toEqual([9, 'Trial 9, the best (choose another one in the table of Overview)']);
  expect(shown({ smaller_is_better: true })[0]).toBe(7);
  expect(shown({}, [row({ id: 11, best: null, status: 'running' }), ...rows])[0]).toBe(11);
  const chosen = { ...search(rows).chosen, trial: trial({ id: 7 }) } as ISearchState['chosen'];
  expect(shown({ chosen })).toEqual([7, 'Trial 7 (choose another one in the table of Overview)']);
});
