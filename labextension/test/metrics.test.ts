// @vitest-environment happy-dom
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';

import type { IPicture } from '../src/charts/picture.js';
import { pictureTable, rowPlaces } from '../src/charts/picturetable.js';
import { Chooser, matching, MAX_CHOSEN } from '../src/metrics/chooser.js';
import { pictureOf, wholeOf, type ILook } from '../src/metrics/metricpictures.js';
import { metricsTab } from '../src/metrics/metricstab.js';
import {
  metricNames,
  reportedNames,
  secondsAt,
  tracesInState,
  tracesOf,
  type ITrace
} from '../src/metrics/traces.js';
import { idsIn, trialsOf } from '../src/metrics/traces.js';
import type { Ask } from '../src/model/questions.js';
import { Settings } from '../src/model/viewsettings.js';
import type { IViewState } from '../src/model/state.js';
import { english } from '../src/model/trans.js';
import type { IPanel } from '../src/tabs/tab.js';
import { chart, search, series, state, trial } from './samples.js';
import { measured, seriesPage } from './seriessamples.js';
import type { ISeriesQuery } from '../src/model/answers.js';

const ramp = (n: number): number[] => Array.from({ length: n }, (_, i) => i);

function trace(changes: Partial<ITrace> = {}): ITrace {
  return {
    trialId: 1,
    group: 'training',
    isLine: true,
    x: [0, 10, 20],
    mid: [3, 2, 1],
    ...changes
  };
}

function look(changes: Partial<ILook> = {}): ILook {
  return {
    axis: 'step',
    logX: false,
    logY: false,
    smoothing: 0,
    stepsPerEpoch: null,
    zoom: null,
    trialIds: [1],
    ...changes
  };
}

const draw = (traces: ITrace[], changes: Partial<ILook> = {}): IPicture =>
  pictureOf('loss', traces, look(changes), [], english);

describe('traces', () => {
  it('of a page leave out averages of what is there for each batch', () => {
    const page = seriesPage([
      measured({ name: 'loss', source: 'batches', mid: [3, 2] }),
      measured({ name: 'loss', source: 'training', mid: [2.5] }),
      measured({ name: 'validation_loss', source: 'validation', mid: [4] }),
      measured({ name: 'lr', source: 'training', mid: [0.1] })
    ]);
    const found = tracesOf(page, 3, ['loss', 'validation_loss'], true);
    expect(found.map(one => [one.group, one.isLine, one.x])).toEqual([
      ['training', true, [0, 1]],
      ['validation', false, [0]]
    ]);
    expect(tracesOf(page, 3, ['lr'], false)[0]?.x).toEqual([1000]);
  });

  it('begin with those of the state, before the kernel has answered', () => {
    const charts = [chart(series({ trial_id: 1 }), series({ trial_id: 2 }))];
    expect(tracesInState(charts, 'loss', [1], true).map(one => one.x)).toEqual([[0, 1, 2]]);
    expect(tracesInState(charts, 'accuracy', [1], true)).toEqual([]);
  });

  it('have the names of the view; a validation metric joins its training metric', () => {
    const names = metricNames(state({ more_metrics: ['f1', 'val_f1'] }));
    expect(names).toEqual(['loss', 'f1', 'val_f1']);
    expect(reportedNames('loss', names)).toEqual(['loss', 'validation_loss', 'val_loss']);
    expect(reportedNames('f1', names)).toEqual(['f1', 'validation_f1']);
    const titles = state({ search: search([]), more_metrics: ['loss (validation)', 'acc (best)'] });
    expect(metricNames(titles)).toEqual(['loss', 'acc']);
  });

  it('say when a step was', () => {
    const charts = [chart(series({ steps: [10, 20], seconds: [1, 5] }))];
    expect(secondsAt(charts, 1, 15)).toBe(5);
    expect(secondsAt(charts, 1, 99)).toBeNull();
    expect(secondsAt(charts, 2, 10)).toBeNull();
  });
});

describe('pictures', () => {
  it('put curves with points at different places side by side', () => {
    const validation = trace({ group: 'validation', isLine: false, x: [10], mid: [5] });
    const picture = draw([trace(), validation]);
    expect(picture.x).toEqual([0, 10, 20]);
    expect(picture.curves.map(one => [one.label, one.values, one.hasDots])).toEqual([
      ['training', [3, 2, 1], false],
      ['validation', [undefined, 5, undefined], true]
    ]);
  });

  it('draw an average over what was measured, of long curves, in the share of what is shown', () => {
    const mid = ramp(200).map(i => i % 2);
    const long = trace({ x: ramp(200), mid });
    const average = draw([long], { smoothing: 0.1 }).curves[0]?.average as number[];
    expect(Math.abs((average[100] as number) - 0.5)).toBeLessThan(0.03);
    const zoomed = draw([long], { smoothing: 0.1, zoom: [90, 100] }).curves[0]?.average;
    expect(Math.abs((zoomed?.[100] as number) - 0.5)).toBeGreaterThan(0.1);
    expect(draw([trace()], { smoothing: 0.1 }).curves[0]?.average).toBeUndefined();
  });

  it('show a band where a column stands for several points', () => {
    const [one] = draw([trace({ low: [2, 2, 1], high: [4, 2, 1] })]).curves;
    expect(one?.band?.low).toEqual([2, 2, 1]);
    const [other] = draw([trace({ low: [3, 2, 1], high: [3, 2, 1] })]).curves;
    expect(other?.band).toBeUndefined();
  });

  it('tell trials apart by colour, then by dashes, and name them', () => {
    const traces = [1, 2, 3, 4, 5].map(trialId => trace({ trialId }));
    const { curves } = draw(traces, { trialIds: [1, 2, 3, 4, 5] });
    expect(curves[1]?.label).toBe('trial 2 training');
    const looks = curves.map(one => `${one.color} ${one.isDashed}`);
    expect(new Set(looks).size).toBe(5);
  });

  it('have no place for 0 and less on logarithmic axes', () => {
    const traces = [trace({ mid: [3, -2, 1] })];
    const picture = draw(traces, { logX: true, logY: true });
    expect([picture.x, picture.curves[0]?.values]).toEqual([
      [10, 20],
      [null, 1]
    ]);
    expect(wholeOf(traces, look({ logX: true }))).toEqual([10, 20]);
    expect(wholeOf([], look({ logX: true }))).toEqual([1, 10]);
    expect(draw([trace({ mid: [-1, -2, -3] })], { logY: true }).logY).toBe(false);
  });

  it('count epochs where their length is known', () => {
    expect(draw([trace()], { axis: 'epoch', stepsPerEpoch: 10 }).x).toEqual([0, 1, 2]);
    expect(draw([trace()], { axis: 'epoch' }).empty).toBe('nothing to draw');
  });

  it('are tables for who cannot see them: sparse curves where they have points', () => {
    const validation = trace({ group: 'validation', isLine: false, x: [10], mid: [5] });
    const picture = draw([trace(), validation]);
    const words = { axis: 'Step', place: (x: number) => `step ${x}` };
    const table = pictureTable(picture, [0, 20], words);
    const cells = [...table.querySelectorAll('tbody tr')].map(row =>
      [...row.children].map(cell => cell.textContent)
    );
    expect(cells).toEqual([['step 10', '2.000', '5.000']]);
    const long = draw([trace({ x: ramp(1000), mid: ramp(1000) })]);
    const places = rowPlaces(long, [100, 900]);
    expect([places.length, places[0], places.at(-1)]).toEqual([15, 100, 900]);
  });
});

describe('the chooser', () => {
  const names = ramp(5000).map(i => `layer.${i}.norm`);
  const boxes = (chooser: Chooser): HTMLInputElement[] => [
    ...chooser.node.querySelectorAll<HTMLInputElement>('[type=checkbox]')
  ];

  it('lists some of very many names, the chosen first, and says how many more there are', () => {
    const chooser = new Chooser(english, () => undefined);
    chooser.update(names, ['layer.4999.norm']);
    expect(boxes(chooser).length).toBe(200);
    expect(boxes(chooser)[0]?.value).toBe('layer.4999.norm');
    expect(boxes(chooser)[0]?.checked).toBe(true);
    expect(chooser.node.textContent).toContain(
      '1 of 5000 drawn, 4800 more are not listed: filter them'
    );
  });

  it('finds by text and by regular expression, and takes an unfinished one as text', () => {
    expect(matching(names, 'LAYER.12.').length).toBe(1);
    expect(matching(names, '/\\.1\\d\\./').length).toBe(10);
    expect(matching(['a/(/'], '/(/')).toEqual(['a/(/']);
  });

  it('answers 5,000 names in a moment', () => {
    const chooser = new Chooser(english, () => undefined);
    const start = performance.now();
    chooser.update(names, []);
    for (let i = 0; i < 20; i += 1) {
      matching(names, `${i}`);
      chooser.update(names, []);
    }
    expect(performance.now() - start).toBeLessThan(1000);
  });

  it('adds and removes, up to as many as can be drawn', () => {
    let chosen: string[] = [];
    const chooser = new Chooser(english, some => {
      chosen = some;
    });
    document.body.replaceChildren(chooser.node);
    chooser.update(['a', 'b'], ['a']);
    boxes(chooser)[1]?.click();
    expect(chosen).toEqual(['a', 'b']);
    boxes(chooser)[0]?.click();
    expect(chosen).toEqual([]);
    chooser.update(names, names.slice(0, MAX_CHOSEN));
    expect(boxes(chooser)[MAX_CHOSEN]?.disabled).toBe(true);
    expect(boxes(chooser)[0]?.disabled).toBe(false);
  });
});

describe('trials', () => {
  it('are those that the reader names, else those of the overview', () => {
    expect(idsIn('3, 7 and 7;x')).toEqual([3, 7]);
    const alone = state({ trials: [trial({ id: 4 })] });
    expect(trialsOf(alone, '')).toEqual([4]);
    expect(trialsOf(alone, '9')).toEqual([9]);
    const faint = series({ trial_id: 2, is_faint: true });
    const charts = [chart(series({ trial_id: 5 }), faint)];
    expect(trialsOf(state({ search: search([]), trials: [], charts }), '')).toEqual([5]);
  });
});

describe('the tab', () => {
  let asked: { trial_id: number; query: ISeriesQuery }[];
  let settings: Settings;
  let panel: IPanel;
  let host: HTMLElement;

  function open(shown: IViewState, stored = {}): void {
    asked = [];
    settings = new Settings(stored);
    host = document.createElement('div');
    document.body.replaceChildren(host);
    const page = seriesPage([measured({ name: 'loss', source: 'batches', mid: [9, 8] })]);
    const ask = ((type: string, question: (typeof asked)[number]) => {
      expect(type).toBe('series');
      asked.push(question);
      return Promise.resolve({ page });
    }) as Ask;
    const requests = { trans: english, onCommand: () => Promise.resolve(), slowHint: 'busy' };
    const tab = metricsTab({ requests, ask, settings, makeChart: () => ({}) as never });
    panel = tab.open(host);
    panel.setShown?.(true);
    panel.update?.(shown);
  }

  const settle = (ms = 0): Promise<unknown> => vi.advanceTimersByTimeAsync(ms);

  beforeEach(() => vi.useFakeTimers());
  afterEach(() => {
    panel.dispose();
    vi.useRealTimers();
  });

  it('asks for the chosen metrics of its trials, along the axis', async () => {
    open(state({ trials: [trial({ id: 1 })] }));
    await settle();
    expect(asked.map(one => [one.trial_id, one.query.axis, one.query.names])).toEqual([
      [1, 'batches', ['loss', 'validation_loss', 'val_loss']]
    ]);
    settings.change({ axis: 'time', trials: '1, 12' });
    await settle();
    expect(asked.slice(1).map(one => [one.trial_id, one.query.axis])).toEqual([
      [1, 'time'],
      [12, 'time']
    ]);
  });

  it('draws and asks nothing while it is not seen', async () => {
    open(state());
    await settle();
    panel.setShown?.(false);
    const before = [asked.length, host.innerHTML];
    panel.update?.(state({ more_metrics: ['new'] }));
    settings.change({ trials: '5' });
    await settle(60_000);
    expect([asked.length, host.innerHTML]).toEqual(before);
  });

  it('has the same numbers as tables', async () => {
    open(state(), { table: true });
    await settle();
    expect(host.querySelector('caption')?.textContent).toBe('loss');
    const rows = [...host.querySelectorAll('tbody tr')].map(row => row.textContent);
    expect(rows).toEqual(['step 10009.000', 'step 10018.000']);
  });

  it('draws nothing when the reader has chosen nothing', () => {
    open(state(), { metrics: [] });
    expect(host.querySelector('.det-empty:not([hidden])')?.textContent).toContain('No metric');
    expect(asked).toEqual([]);
  });

  it('says why there is nothing', () => {
    open(state({ charts: [], no_metrics: 'No metrics yet.' }));
    expect(host.querySelector('.det-empty:not([hidden])')?.textContent).toBe('No metrics yet.');
    expect(asked).toEqual([]);
  });
});
