// @vitest-environment happy-dom
import { afterEach, describe, expect, it } from 'vitest';

import type { IChartView } from '../src/charts/chart.js';
import type { ITrialRow, ISearchState } from '../src/model/state.js';
import { Settings } from '../src/model/viewsettings.js';
import { SearchView } from '../src/search/searchview.js';
import { english } from '../src/model/trans.js';
import { row, search, state, trial } from './samples.js';
import { wait } from './clustersamples.js';

let view: SearchView;
let chosen: (number | null)[];

function stateOf(rows: ITrialRow[], changes: Partial<ISearchState> = {}): ReturnType<typeof state> {
  return state({ search: search(rows, changes), trials: [], num_trials: rows.length });
}

function show(rows: ITrialRow[], changes: Partial<ISearchState> = {}): void {
  chosen = [];
  view = new SearchView({
    requests: { trans: english, onCommand: () => Promise.resolve(), slowHint: '' },
    settings: new Settings(),
    makeChart: (): IChartView => ({
      node: document.createElement('figure'),
      update: () => undefined,
      restyle: () => undefined,
      dispose: () => undefined
    }),
    onChoose: id => chosen.push(id),
    onFocus: () => undefined
  });
  document.body.append(view.node);
  view.update(stateOf(rows, changes), 1000);
}

/** Trials of which the one with number 1 is the best, and so on. */
function trials(count: number): ITrialRow[] {
  return Array.from({ length: count }, (_, i) =>
    row({ id: i + 1, best: 1 - (i + 1) / 1000, values: [0.1 / (i + 1), i % 2] })
  );
}

function find(selector: string): HTMLElement {
  const found = view.node.querySelector<HTMLElement>(selector);
  if (found === null) {
    throw new Error(`nothing is ${selector}`);
  }
  return found;
}

function shownIds(): number[] {
  return [...view.node.querySelectorAll('tr[data-trial]')].map(one =>
    Number(one.getAttribute('data-trial'))
  );
}

function click(text: string): void {
  const buttons = [...view.node.querySelectorAll('button')];
  const button = buttons.find(one => one.textContent.startsWith(text));
  if (button === undefined) {
    throw new Error(`no button ${text}`);
  }
  button.click();
}

function press(key: string): void {
  const event = new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true });
  document.activeElement?.dispatchEvent(event);
}

afterEach(() => {
  view.dispose();
  view.node.remove();
});

it('has a legend of the best and the worst once a trial has the metric', () => {
  show([row({ id: 1, best: null })]);
  expect(view.node.textContent).not.toContain('worst');
  expect(view.node.textContent).not.toContain('NaN');
  view.update(stateOf([row({ id: 1, best: 0.25 })]), 1001);
  expect(view.node.textContent).toContain('worst 0.25');
});

describe('table', () => {
  it('has the best trials first, and ten of them', () => {
    show(trials(300).reverse());
    expect(shownIds()).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    expect(find('.det-trial-list > .det-line').textContent).toContain('1–10 of 300 trials');
  });

  it('shows fifty at a time when asked for more', () => {
    show(trials(120));
    click('Show more');
    expect(shownIds()).toHaveLength(50);
    click('Next');
    click('Next');
    expect(shownIds()).toEqual(Array.from({ length: 20 }, (_, i) => i + 101));
    click('Previous');
    expect(shownIds()[0]).toBe(51);
    click('Show fewer');
    expect(shownIds()).toHaveLength(10);
  });

  it('is sorted by the heading that is clicked, and the other way when it is clicked again', () => {
    show(trials(5));
    const heading = (): Element => find('[data-key="0"]').closest('th') as Element;
    expect(heading().getAttribute('aria-sort')).toBeNull();
    click('lr');
    expect(shownIds()).toEqual([5, 4, 3, 2, 1]);
    expect(heading().getAttribute('aria-sort')).toBe('ascending');
    click('lr');
    expect(shownIds()).toEqual([1, 2, 3, 4, 5]);
    expect(heading().getAttribute('aria-sort')).toBe('descending');
    expect(document.activeElement?.getAttribute('data-key')).toBe('0');
  });

  it('says that the best metric is at the top', () => {
    show(trials(2));
    expect(find('[data-key="best"]').closest('th')?.getAttribute('aria-sort')).toBe('descending');
  });

  it('keeps its rows and changes only what changed', () => {
    show(trials(3));
    const before = find('tr[data-trial="2"]');
    const rows = trials(3);
    view.update(stateOf([rows[0] as ITrialRow, { ...(rows[1] as ITrialRow), best: 0.9995 }]), 1001);
    expect(shownIds()).toEqual([2, 1]);
    expect(find('tr[data-trial="2"]')).toBe(before);
    expect(before.children[3]?.textContent).toBe('0.9995');
  });

  it('keeps the order while the pointer is there', () => {
    show(trials(3));
    find('.det-trial-list').dispatchEvent(new Event('pointerenter'));
    const better = trials(3).map(one => (one.id === 3 ? { ...one, best: 2 } : one));
    view.update(stateOf([...better, row({ id: 4, best: 3 })]), 1001);
    expect(shownIds()).toEqual([1, 2, 3, 4]);
    find('.det-trial-list').dispatchEvent(new Event('pointerleave'));
    view.update(stateOf(better), 1002);
    expect(shownIds()).toEqual([3, 1, 2]);
  });

  it('is walked and chosen from by keys', () => {
    show(trials(5));
    find('tr[data-trial="1"]').focus();
    press('ArrowDown');
    press('ArrowDown');
    expect(document.activeElement?.getAttribute('data-trial')).toBe('3');
    press('Enter');
    expect(chosen).toEqual([3]);
    expect(find('tr[data-trial="3"]').getAttribute('aria-selected')).toBe('true');
    press('Escape');
    expect(chosen).toEqual([3, null]);
    press('End');
    expect(document.activeElement?.getAttribute('data-trial')).toBe('5');
  });

  it('can be entered with Tab at one row only', () => {
    show(trials(5));
    const stops = [...view.node.querySelectorAll('tr[tabindex="0"]')];
    expect(stops.map(one => one.getAttribute('data-trial'))).toEqual(['1']);
  });

  it('goes to the page of a trial that was chosen elsewhere', () => {
    show(trials(120));
    view.focus.choose(77);
    expect(shownIds()).toContain(77);
    expect(shownIds()).toHaveLength(50);
  });

  it('has only the trials that a filter keeps', () => {
    show(trials(20));
    view.focus.brush(2, [0.995, 1]);
    expect(shownIds()).toEqual([1, 2, 3, 4, 5]);
    expect(find('.det-trial-list > .det-line').textContent).toBe(
      '1–5 of 5 trials (20 without filter)'
    );
    click('Clear filter');
    expect(shownIds()).toHaveLength(10);
  });

  it('says that there are no trials yet', () => {
    show([]);
    expect(find('.det-trial-list > .det-line').textContent).toBe('No trials yet.');
  });
});

describe('chosen trial', () => {
  it('is asked for, and shown when it has come', () => {
    show(trials(3));
    find('tr[data-trial="2"]').click();
    expect(chosen).toEqual([2]);
    expect(find('.det-chosen').textContent).toContain(
      'Its curves and ranks appear when the notebook kernel has answered.'
    );
    const full = { trial: trial({ id: 2 }), charts: [], more_metrics: [], no_metrics: '' };
    view.update(stateOf(trials(3), { chosen: full }), 1001);
    expect(find('.det-chosen').textContent).toContain('Trial 2 · running');
    expect(find('.det-chosen .det-empty').hidden).toBe(true);
  });

  it('is not another one that was asked for before', () => {
    show(trials(3), {
      chosen: { trial: trial({ id: 1 }), charts: [], more_metrics: [], no_metrics: '' }
    });
    view.focus.choose(3);
    expect(find('.det-chosen').textContent).toContain('Trial 3');
    expect(find('.det-chosen').textContent).not.toContain('Trial 1 ·');
  });

  it('is no longer when it is clicked again, or closed', () => {
    show(trials(3));
    find('tr[data-trial="2"]').click();
    find('tr[data-trial="2"]').click();
    view.focus.choose(1);
    click('Close');
    expect(chosen).toEqual([2, null, 1, null]);
    expect(find('.det-chosen').hidden).toBe(true);
  });
});

describe('pictures', () => {
  it('of rungs is there only where trials are compared on the way', () => {
    show(trials(2));
    expect(find('.det-figure').hidden).toBe(false);
    view.update(stateOf(trials(2), { brackets: [] }), 1001);
    expect(find('.det-figure').hidden).toBe(true);
  });

  it('say in words what they show', () => {
    show(trials(2), { improvements: [{ after_s: 1, value: 0.9, trial_id: 1 }] });
    const labels = [...view.node.querySelectorAll('.det-stage')].map(one =>
      one.getAttribute('aria-label')
    );
    expect(labels).toEqual([
      'Trials at each rung by accuracy; 1 epoch: 3 reached, 1 promoted; ' +
        '4 epochs: 1 reached, 0 promoted; arrow keys read it trial by trial, Enter chooses',
      'Best accuracy over time, now 0.9000; arrow keys read it step by step, ' +
        'Enter chooses the trial',
      '2 hyperparameters and accuracy of 2 trials; arrow keys go from the best to the worst, ' +
        'Enter chooses; the table can be sorted by each of them',
      'accuracy of each trial by lr; arrow keys go from trial to trial, Enter chooses'
    ]);
  });

  it('of hyperparameters is read aloud from the best to the worst by keys', () => {
    show(trials(3));
    const stage = [...view.node.querySelectorAll<HTMLElement>('.det-stage')][2] as HTMLElement;
    stage.focus();
    press('ArrowDown');
    press('ArrowDown');
    expect(stage.closest('figure')?.querySelector('[aria-live]')?.textContent).toBe(
      'trial 2 · resting · accuracy 0.9980 · lr 0.05000 · optimizer.name adam'
    );
    press('Enter');
    expect(chosen).toEqual([2]);
  });

  it('of progress is read aloud improvement by improvement', () => {
    show(trials(3), {
      improvements: [
        { after_s: 5, value: 0.5, trial_id: 3 },
        { after_s: 65, value: 0.9, trial_id: 1 }
      ]
    });
    const stage = [...view.node.querySelectorAll<HTMLElement>('.det-stage')][1] as HTMLElement;
    stage.focus();
    press('ArrowLeft');
    press('ArrowLeft');
    expect(stage.closest('figure')?.querySelector('[aria-live]')?.textContent).toBe(
      'accuracy 0.5000 · trial 3 after 0:05'
    );
    press('Enter');
    expect(chosen).toEqual([3]);
  });
});

describe('remarks', () => {
  it('are told, and lead to their trials', () => {
    show(trials(9), {
      remarks: [{ trial_ids: [7], is_failure: false, text: 'trial 7 reported no accuracy' }],
      num_more_remarks: 2
    });
    expect(find('.det-remarks').textContent).toBe(
      'trial 7 reported no accuracyshow 72 more remarks'
    );
    find('.det-remark button').click();
    expect(chosen).toEqual([7]);
  });

  it('say what a search waits for', () => {
    show([], {
      wait: wait({ sentence: 'Needs 4 slots; 2 are free.', expected: '', remedies: [] })
    });
    expect(find('.det-waiting').textContent).toBe('Needs 4 slots; 2 are free.');
  });
});

describe('safety', () => {
  it('shows hostile names as the text they are', () => {
    const name = '<img src=x onerror=alert(1)>';
    const axes = search([]).axes.map(axis => ({ ...axis, name, labels: [name, name] }));
    show([row({ status_word: name })], {
      axes,
      metric: name,
      wait: wait({ sentence: name }),
      remarks: [{ trial_ids: [1], is_failure: true, text: name }]
    });
    expect(view.node.querySelectorAll('img, script')).toHaveLength(0);
  });
});
