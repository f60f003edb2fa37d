import type uPlot from 'uplot';
import { describe, expect, it } from 'vitest';

import { alongAxis, drawnAxis, placeText, tickText, wholeRange } from '../src/charts/axes.js';
import { isLogY, plotColumns, plotShape, type IChartFrame } from '../src/charts/plot.js';
import { logTicks } from '../src/charts/ticks.js';
import { axesOf } from '../src/charts/uplotparts.js';
import type { ITheme } from '../src/dom/theme.js';
import { Settings, type Axis, type ISettings } from '../src/model/viewsettings.js';
import { english } from '../src/model/trans.js';
import { chart, series } from './samples.js';

const known = series({ steps: [0, 4, 8], seconds: [0, 30, 90], steps_per_epoch: 4 });

function frame(changes: Partial<IChartFrame> = {}): IChartFrame {
  return {
    range: [0, 1],
    axis: 'step',
    logX: false,
    logY: false,
    smooth: false,
    stepsPerEpoch: null,
    ...changes
  };
}

describe('the x axis', () => {
  it('counts batches, epochs, or seconds since the first report', () => {
    const xs = (['step', 'epoch', 'time'] as const).map(
      axis => alongAxis(chart(known), axis, false).series[0]?.steps
    );
    expect(xs).toEqual([
      [0, 4, 8],
      [0, 1, 2],
      [0, 30, 90]
    ]);
  });

  it('compares trials with batches of different sizes by epoch', () => {
    const halved = series({ steps: [0, 8, 16], steps_per_epoch: 8 });
    const { series: both } = alongAxis(chart(known, halved), 'epoch', false);
    expect(both.map(one => one.steps)).toEqual([
      [0, 1, 2],
      [0, 1, 2]
    ]);
  });

  it('has no place for 0 if it is logarithmic', () => {
    const [one] = alongAxis(chart(known), 'time', true).series;
    expect(one?.steps).toEqual([30, 90]);
    expect(one?.values).toEqual([2, 1]);
    expect(wholeRange([alongAxis(chart(known), 'time', true)], true)).toEqual([30, 90]);
    expect(wholeRange([chart(known)], false)).toEqual([0, 8]);
    expect(wholeRange([chart(series({ steps: [], values: [] }))], true)).toEqual([1, 10]);
  });

  it('counts batches where the length of an epoch is known for no curve', () => {
    expect(drawnAxis('epoch', [chart(series())])).toBe('step');
    expect(drawnAxis('epoch', [chart(series(), known)])).toBe('epoch');
    expect(alongAxis(chart(series(), known), 'epoch', false).series[0]?.steps).toEqual([]);
  });

  it('is read in words', () => {
    expect(placeText('step', 12, english)).toBe('step 12');
    expect(placeText('epoch', 1 / 3, english)).toBe('epoch 0.33');
    expect([placeText('time', 4.25, english), placeText('time', 75, english)]).toEqual([
      '4.25 s',
      '1:15'
    ]);
    expect([tickText('time', 90), tickText('epoch', 0.5)]).toEqual(['1.5 min', '0.5']);
  });
});

describe('a logarithmic y axis', () => {
  const mixed = chart(series({ values: [10, 0, -1], highest: 10, lowest: -1 }));

  it('draws what is above 0', () => {
    expect(plotColumns(mixed, frame({ logY: true }))[1]).toEqual([10, null, null]);
    expect(plotColumns(mixed, frame())[1]).toEqual([10, 0, -1]);
  });

  it('stays linear where nothing is above 0', () => {
    const below = chart(series({ values: [0, -1, -2], highest: 0 }));
    expect(isLogY(below, frame({ logY: true }))).toBe(false);
    expect(plotColumns(below, frame({ logY: true }))[1]).toEqual([0, -1, -2]);
  });

  it('needs a new plot', () => {
    expect(plotShape(mixed, frame())).not.toBe(plotShape(mixed, frame({ logY: true })));
    expect(plotShape(mixed, frame())).not.toBe(plotShape(mixed, frame({ axis: 'time' })));
  });
});

describe('settings', () => {
  it('are stored when the reader changes them, not when they come from the model', () => {
    const stored: Partial<ISettings>[] = [];
    const settings = new Settings({ axis: 'time' }, value => stored.push(value));
    let changes = 0;
    settings.onChange(() => (changes += 1));
    expect([settings.value.axis, settings.value.smooth]).toEqual(['time', true]);
    settings.load({ log_y: true });
    expect(stored).toEqual([]);
    settings.change({ log_x: true });
    expect(stored[0]).toMatchObject({ log_x: true, log_y: true });
    expect(changes).toBe(2);
  });
});

describe('ticks', () => {
  const increments = (axis: Axis, span: number, ys: number[], place: 0 | 1): number[] => {
    const theme = (): ITheme => ({}) as ITheme;
    const axes = axesOf({ theme, axis, logX: false, logY: false, tick: String });
    const incrs = axes[place]?.incrs;
    const plot = { data: [[0, span], ys] } as unknown as uPlot;
    return typeof incrs === 'function' ? incrs(plot, place, 0, span, 400, 56) : (incrs ?? []);
  };

  it.each([
    ['epochs', 'epoch', 3, [0.5], 0, true],
    ['parts of an epoch', 'epoch', 1.5, [0.5], 0, false],
    ['steps', 'step', 3, [0.5], 0, true],
    ['counts', 'step', 3, [1, null, 3], 1, true],
    ['values', 'step', 3, [1, 2.25], 1, false]
  ] as const)('of %s are whole only where their values are', (_, axis, span, ys, place, whole) => {
    const all = increments(axis, span, [...ys] as number[], place);
    expect(all.every(Number.isInteger)).toBe(whole);
    expect(all).toContain(1);
    expect(all).toContain(500);
  });

  it.each([
    ['within a power', [0.2, 0.9]],
    ['narrow', [2.1, 2.9]],
    ['very narrow', [0.9991, 0.9997]],
    ['to a power', [1, 10]],
    ['over one power', [0.15, 9]],
    ['of steps', [1, 50]],
    ['between powers', [20, 80]],
    ['over many powers', [1e-12, 1e4]],
    ['of floats at their ends', [1e-45, 3e38]]
  ] as const)('of a logarithmic axis %s are two at least, in its range and apart', (_, range) => {
    const [min, max] = range;
    for (const room of [
      { length: 134, space: 32 },
      { length: 240, space: 56 },
      { length: 1200, space: 56 }
    ]) {
      const ticks = logTicks(range, room);
      const places = ticks.map(tick => (Math.log(tick / min) / Math.log(max / min)) * room.length);
      expect(ticks.length).toBeGreaterThanOrEqual(2);
      expect(ticks.every(tick => tick >= min && tick <= max)).toBe(true);
      const gaps = places.slice(1).map((place, i) => place - (places[i] as number));
      expect(Math.min(...gaps)).toBeGreaterThanOrEqual(0.6 * room.space);
      expect(ticks).toEqual(ticks.map(tick => Number(tick.toPrecision(6))));
    }
  });
});
