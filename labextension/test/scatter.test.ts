// @vitest-environment happy-dom
import { describe, expect, it } from 'vitest';

import { Focus } from '../src/search/focus.js';
import { ImportanceBars } from '../src/search/searchview.js';
import {
  layoutScatter,
  nextScatterDot,
  scatterAxis,
  scatterMetric,
  type IScatterLayout
} from '../src/search/scatter.js';
import { nearestDot } from '../src/search/rungs.js';
import { ScatterPicture } from '../src/search/scatterpicture.js';
import { Settings } from '../src/model/viewsettings.js';
import type { IAxis } from '../src/model/state.js';
import { english } from '../src/model/trans.js';
import { axis, row, search } from './samples.js';

const rows = [
  row({ id: 1, best: 0.9, values: [1e-4, 0], metrics: [10] }),
  row({ id: 2, best: 0.5, values: [1e-1, 1], metrics: [-1] }),
  row({ id: 3, best: null, values: [1e-2, 1], metrics: [null] }),
  row({ id: 4, best: 0.7, values: [null, 1], metrics: [1] })
];
const data = search(rows, {
  best_axis: axis({ start: 1, end: 0 }),
  metrics: [axis({ name: 'loss', start: -2, end: 11 })]
});

function layout(metric = 'accuracy', axis = 0, isLogY = false): IScatterLayout {
  return layoutScatter(data, {
    axis: data.axes[axis] as IAxis,
    metric: scatterMetric(data, metric),
    isLogY,
    width: 500,
    height: 200
  });
}

describe('a scatter', () => {
  it('has a dot for each trial with a value of both', () => {
    expect(layout().dots.map(dot => [dot.row.id, dot.value])).toEqual([
      [1, 0.9],
      [2, 0.5]
    ]);
    expect(layout('loss', 1).dots.map(dot => dot.row.id)).toEqual([1, 2, 4]);
  });

  it('has larger values higher up, and the axis of the hyperparameter', () => {
    const [first, second] = layout().dots;
    expect(first?.y).toBeLessThan(second?.y ?? 0);
    expect(first?.x).toBeLessThan(second?.x ?? 0);
    expect(layout('accuracy', 1).xTicks.map(tick => tick.label)).toEqual(['sgd', 'adam']);
  });

  it('leaves out what a logarithmic axis has no place for', () => {
    const { dots, yTicks } = layout('loss', 1, true);
    expect(dots.map(dot => dot.row.id)).toEqual([1, 4]);
    expect(yTicks.map(tick => tick.label)).toEqual(['1', '2', '5', '10']);
  });

  it('falls back to the first hyperparameter and the metric of the search', () => {
    expect(scatterAxis(data, 'gone')?.name).toBe('lr');
    expect(scatterMetric(data, 'gone').name).toBe('accuracy');
    expect(scatterMetric(data, 'loss').name).toBe('loss');
  });

  it('is read by pointer and by keys', () => {
    const { dots } = layout();
    const [first] = dots;
    expect(nearestDot(dots, (first?.x ?? 0) + 3, first?.y ?? 0)?.row.id).toBe(1);
    expect(nearestDot(dots, 250, 100)).toBeNull();
    const steps = [
      nextScatterDot(dots, null, 'ArrowRight'),
      nextScatterDot(dots, 1, 'ArrowRight'),
      nextScatterDot(dots, 2, 'ArrowRight'),
      nextScatterDot(dots, null, 'ArrowLeft'),
      nextScatterDot(dots, 2, 'Home'),
      nextScatterDot(dots, 1, 'x'),
      nextScatterDot([], null, 'ArrowRight')
    ];
    expect(steps.map(dot => dot?.row.id)).toEqual([1, 2, 2, 2, 1, undefined, undefined]);
  });

  it('draws what the reader chooses, and stores the choice', () => {
    const settings = new Settings();
    const picture = new ScatterPicture(english, new Focus(), settings);
    picture.update(data);
    const [x, y] = [...picture.stage.node.querySelectorAll('select')] as [
      HTMLSelectElement,
      HTMLSelectElement
    ];
    expect([...y.options].map(one => one.textContent)).toEqual(['accuracy (best)', 'loss (last)']);
    x.value = 'optimizer.name';
    x.dispatchEvent(new Event('change'));
    y.value = 'loss';
    y.dispatchEvent(new Event('change'));
    expect(settings.value).toMatchObject({ scatter_x: 'optimizer.name', scatter_y: 'loss' });
    const stage = picture.stage.node.querySelector('.det-stage');
    expect(stage?.getAttribute('aria-label')).toContain('loss of each trial by optimizer.name');
    picture.stage.dispose();
  });
});

describe('importance', () => {
  it('is a bar and a number for each hyperparameter', () => {
    const bars = new ImportanceBars(english);
    bars.update(null);
    expect(bars.node.hidden).toBe(true);
    bars.update({
      num_ended: 20,
      shares: [{ name: 'lr', share: 0.712 }],
      sentence: 'Best quarter.'
    });
    expect(bars.node.hidden).toBe(false);
    expect(bars.node.querySelector('li')?.textContent).toBe('lr71 %');
    expect(bars.node.querySelector<HTMLElement>('.det-share i')?.style.width).toBe('71.2%');
  });

  it('says why there is none', () => {
    const bars = new ImportanceBars(english);
    bars.update({ num_ended: 3, shares: [], sentence: 'It needs 20 trials.' });
    expect(bars.node.textContent).toBe('ImportanceIt needs 20 trials.');
  });
});
