// @vitest-environment happy-dom
import { afterEach, describe, expect, it } from 'vitest';

import type { IChartView } from '../src/charts/chart.js';
import { ComparisonView } from '../src/comparison.js';
import type { IChart, IComparisonState } from '../src/model/state.js';
import type { IChartFrame } from '../src/charts/plot.js';
import { Settings } from '../src/model/viewsettings.js';
import { chart, series } from './samples.js';

const SIDES: IComparisonState['sides'] = [3, 7].map((id, look) => ({
  id,
  label: `${id} digits`,
  note: id === 7 ? 'trial 5 of 16, the best' : '',
  look,
  status: 'completed',
  status_word: 'Completed'
}));

function comparison(changes: Partial<IComparisonState> = {}): IComparisonState {
  return {
    title: 'Experiments 3 and 7',
    as_of: 0,
    sides: SIDES,
    notes: ['A search is compared by its best trial.'],
    charts: [chart(series({ trial_id: 3 }), series({ trial_id: 7, steps_per_epoch: 2 }))],
    more_metrics: [],
    no_metrics: '',
    tables: [
      {
        title: 'Results',
        empty: '',
        facts: [{ name: 'best loss', values: ['0.5', '0.4'], best: [1] }]
      },
      { title: 'Versions', empty: 'All versions are equal.', facts: [] }
    ],
    code: [{ name: 'Cell In[3]', side: 1, lines: ['--- a', '+++ b', '-x = 1', '+x = "<b>"'] }],
    no_code: '',
    ...changes
  };
}

let view: ComparisonView;
let shown: { chart: IChart; frame: IChartFrame }[];
let settings: Settings;

function show(state = comparison()): void {
  shown = [];
  settings = new Settings();
  view = new ComparisonView({
    settings,
    makeChart: (): IChartView => ({
      node: document.createElement('figure'),
      update: (one, frame) => shown.push({ chart: one, frame }),
      restyle: () => undefined,
      dispose: () => undefined
    })
  });
  document.body.append(view.node);
  view.update(state);
}

function button(name: string): HTMLButtonElement {
  const all = [...view.node.querySelectorAll('button')];
  return all.find(one => one.textContent === name) as HTMLButtonElement;
}

const drawn = (): (number | undefined)[] | undefined =>
  shown.at(-1)?.chart.series.map(one => one.trial_id);

afterEach(() => view.dispose());

describe('a comparison', () => {
  it('says what is compared, with the best marked in words too', () => {
    show();
    const text = view.node.textContent;
    expect(text).toContain('Experiments 3 and 7');
    expect(text).toContain('A search is compared by its best trial.');
    expect(text).toContain('All versions are equal.');
    const [cell] = [...view.node.querySelectorAll('td')].slice(-1);
    expect(cell?.textContent).toBe('0.4 ★the best');
  });

  it('hides and shows the curves of a side', () => {
    show();
    button('3 digits').click();
    expect(drawn()).toEqual([7]);
    expect(button('3 digits').getAttribute('aria-pressed')).toBe('false');
    button('7 digits').click();
    expect(view.node.querySelector('.det-board')?.textContent).toContain('No curves are chosen.');
    button('3 digits').click();
    expect(drawn()).toEqual([3]);
  });

  it('makes the curves of a side stand out, by the pointer or for good', () => {
    show();
    button('7 digits').dispatchEvent(new Event('pointerenter'));
    expect(shown.at(-1)?.frame.chosen).toBe(7);
    button('7 digits').dispatchEvent(new Event('pointerleave'));
    expect(shown.at(-1)?.frame.chosen).toBeNull();
    const heading = view.node.querySelector<HTMLButtonElement>('th .det-link');
    heading?.click();
    expect(shown.at(-1)?.frame.chosen).toBe(3);
    expect(heading?.getAttribute('aria-pressed')).toBe('true');
    heading?.click();
    expect(shown.at(-1)?.frame.chosen).toBeNull();
  });

  it('marks lines of code by sign and colour, and never as markup', () => {
    show();
    const lines = [...view.node.querySelectorAll('.det-diff span')];
    expect(lines.map(one => one.getAttribute('data-kind'))).toEqual([
      'file',
      'file',
      'removed',
      'added'
    ]);
    expect(view.node.querySelector('.det-diff b')).toBeNull();
  });

  it('shows long differences on demand', () => {
    const lines = Array.from({ length: 100 }, (_, i) => `+x = ${i}`);
    show(comparison({ code: [{ name: 'nets.py', side: 1, lines }] }));
    expect(view.node.querySelector('details')?.open).toBe(false);
  });

  it('draws along the axis that the reader chooses, and stores the choice', () => {
    show();
    const select = view.node.querySelector('select') as HTMLSelectElement;
    expect([...select.options].map(one => one.disabled)).toEqual([false, false, false]);
    select.value = 'epoch';
    select.dispatchEvent(new Event('change'));
    expect(settings.value.axis).toBe('epoch');
    expect(shown.at(-1)?.frame.axis).toBe('epoch');
    expect(shown.at(-1)?.chart.series.map(one => one.steps)).toEqual([[], [0.5, 1, 1.5]]);
    button('Log y').click();
    expect(shown.at(-1)?.frame.logY).toBe(true);
    expect(button('Log y').getAttribute('aria-pressed')).toBe('true');
  });
});
