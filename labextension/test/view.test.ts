// @vitest-environment happy-dom
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';

import type { IChartView } from '../src/charts/chart.js';
import type { IRankTool, OnCommand } from '../src/dom/notice.js';
import type { Ask } from '../src/model/questions.js';
import type { IChart, IViewState } from '../src/model/state.js';
import type { IChartFrame } from '../src/charts/plot.js';
import { ExperimentView } from '../src/view.js';
import { wait } from './clustersamples.js';
import { chart, series, state, trial } from './samples.js';

/** Stands in for a drawn chart: keeps what it was told. */
class FakeChart implements IChartView {
  readonly node = document.createElement('figure');
  readonly frames: IChartFrame[] = [];
  isDisposed = false;

  constructor(readonly zoom: (range: [number, number] | null) => void) {}

  update(shown: IChart, frame: IChartFrame): void {
    this.node.textContent = shown.title;
    this.frames.push(frame);
  }

  restyle(): void {
    this.node.classList.add('restyled');
  }

  dispose(): void {
    this.isDisposed = true;
  }
}

let charts: FakeChart[];
let view: ExperimentView;

function show(
  first: IViewState,
  onCommand: OnCommand = () => Promise.resolve(),
  rankTools: IRankTool[] = []
): ExperimentView {
  charts = [];
  view = new ExperimentView({
    onCommand,
    rankTools,
    slowHint: 'The kernel is busy.',
    makeChart: ({ onZoom }) => {
      const made = new FakeChart(onZoom);
      charts.push(made);
      return made;
    }
  });
  document.body.append(view.node);
  view.update(first);
  return view;
}

function button(name: string): HTMLButtonElement {
  const all = [...view.node.querySelectorAll('button')];
  const found = all.find(one => one.textContent === name && one.closest('[hidden]') === null);
  if (found === undefined) {
    throw new Error(`no button ${name} among ${all.map(one => one.textContent).join(', ')}`);
  }
  return found;
}

function text(selector: string): string {
  return view.node.querySelector(selector)?.textContent ?? '';
}

beforeEach(() => {
  vi.useFakeTimers({ now: 1_000_000 });
});

afterEach(() => {
  view.dispose();
  vi.useRealTimers();
});

describe('the bell', () => {
  const bell = (): HTMLButtonElement => view.node.querySelector('.det-bell') as HTMLButtonElement;
  const settle = (): Promise<unknown> => vi.advanceTimersByTimeAsync(0);

  /** Give the browser notifications; return what it shows, and how often it was asked. */
  function allow(permission: NotificationPermission): { shown: string[]; asked: number } {
    const browser = { shown: [] as string[], asked: 0 };
    const Notifies = function (title: string): void {
      browser.shown.push(title);
    };
    Notifies.requestPermission = (): Promise<NotificationPermission> => {
      browser.asked += 1;
      return Promise.resolve(permission);
    };
    vi.stubGlobal('Notification', Notifies);
    return browser;
  }

  afterEach(() => vi.unstubAllGlobals());

  it('asks for permission when it is pressed, not before, and notifies once at the end', async () => {
    const browser = allow('granted');
    show(state());
    expect(browser.asked).toBe(0);
    bell().click();
    await settle();
    expect(bell().getAttribute('aria-pressed')).toBe('true');
    view.update(state());
    expect(browser.shown).toEqual([]);
    const ended = state({ status: 'completed', status_word: 'Completed', message: '' });
    view.update(ended);
    view.update(ended);
    expect(browser.shown).toEqual(['digits: Completed']);
    expect(bell().hidden).toBe(true);
  });

  it('stays off and says why where the browser does not allow it', async () => {
    allow('denied');
    show(state());
    bell().click();
    await settle();
    expect(bell().getAttribute('aria-pressed')).toBe('false');
    expect(text('.det-notice')).toContain('does not allow');
  });

  it('says what a browser without notifications needs', async () => {
    show(state());
    vi.stubGlobal('Notification', undefined);
    Reflect.deleteProperty(globalThis, 'Notification');
    bell().click();
    await settle();
    expect(text('.det-notice')).toContain('https');
  });

  it('notifies of nothing when it is off, or was pressed twice', async () => {
    const browser = allow('granted');
    show(state());
    bell().click();
    await settle();
    bell().click();
    await settle();
    view.update(state({ status: 'error', status_word: 'Error' }));
    expect(browser.shown).toEqual([]);
  });
});

describe('header', () => {
  it('shows why an experiment failed in the form of an alarm, and other ends quietly', () => {
    const failed = 'Trial 1: TypeError: no number';
    show(state({ status: 'error', status_word: 'Error', message: failed, alarms: ['nan'] }));
    const alarms = [...view.node.querySelectorAll('[role=alert] .det-alarm')];
    expect(alarms.map(alarm => alarm.textContent)).toEqual([failed, 'nan']);
    expect(view.node.querySelector<HTMLElement>('.det-message')?.hidden).toBe(true);
    view.update(state({ status: 'canceled', status_word: 'Canceled', message: 'By you.' }));
    expect(view.node.querySelector('.det-alarm')).toBeNull();
    expect(view.node.querySelector<HTMLElement>('.det-message')?.hidden).toBe(false);
  });

  it('shows an alarm as a warning with a sign, and notices without a click', () => {
    show(state({ alarms: ['Trial 1: rank 1, batch 7: loss is nan'], notices: ['mind'] }));
    const alarm = view.node.querySelector('[role=alert] .det-alarm');
    expect(alarm?.textContent).toBe('Trial 1: rank 1, batch 7: loss is nan');
    expect(alarm?.querySelector('svg')).not.toBeNull();
    const note = [...view.node.querySelectorAll('p')].find(one => one.textContent === 'mind');
    expect(note?.closest('details')).toBeNull();
    const badge = view.node.querySelector('.det-badge');
    expect(badge?.getAttribute('data-alarm')).toBe('false'); // it recovered
    view.update(state({ alarms: ['loss is nan'], status_word: 'Running, diverged' }));
    expect(view.node.querySelector('.det-badge')?.getAttribute('data-alarm')).toBe('true');
    view.update(state({ status_word: 'Making room' }));
    expect(view.node.querySelector('.det-badge')?.getAttribute('data-alarm')).toBe('false');
  });

  it('adds DetCallback to the cell of the notebook, or shows the cell to copy', async () => {
    const settle = (): Promise<unknown> => vi.advanceTimersByTimeAsync(0);
    const [before, after] = ['def f(): ...', 'def f():\n    det = DetCallback()'];
    const replaced: string[][] = [];
    let hasCell = true;
    const options = {
      onCommand: () => Promise.resolve(),
      makeChart: () => new FakeChart(() => undefined),
      ask: (<T>(type: string) => Promise.resolve({ type, before, after } as T)) as Ask,
      replaceCell: (...sources: [string, string]) => replaced.push(sources) > 0 && hasCell
    };
    view = new ExperimentView(options);
    view.update(state());
    expect(view.node.querySelector('pre')?.closest('[hidden]')).not.toBeNull();
    expect(() => button('Add DetCallback')).toThrow();
    view.update(state({ lacks_callback: true, notices: ['f calls it plainly'] }));
    button('Add DetCallback').click();
    await settle();
    expect(replaced).toEqual([[before, after]]);
    expect(text('.det-foot [role=status]')).toContain('submit again');
    hasCell = false;
    button('Add DetCallback').click();
    await settle();
    expect(text('.det-foot pre')).toBe(after);
    expect(text('.det-foot [role=status]')).toMatch(/Copied|Ctrl/);
  });

  it('says state, name, progress and time in words', () => {
    show(state());
    expect(text('.det-badge')).toBe('Running');
    expect(text('.det-name')).toBe('digits');
    expect([...view.node.querySelectorAll('.det-label')].map(label => label.textContent)).toEqual([
      'good',
      'wide'
    ]);
    expect(text('.det-description')).toBe('Two hidden layers.');
    expect(text('.det-percent')).toBe('50 %');
    expect(text('.det-line')).toContain('step 44 · epoch 2.0 · 0:42 elapsed · about 0:40 left');
    const bar = view.node.querySelector('[role=progressbar]');
    expect(bar?.getAttribute('aria-valuenow')).toBe('50');
  });

  it('counts on between two states, and stops when there is no news', () => {
    show(state());
    vi.advanceTimersByTime(5000);
    expect(text('.det-line')).toContain('0:47 elapsed · about 0:35 left');
    vi.advanceTimersByTime(30_000);
    expect(text('.det-line')).toContain('0:42 elapsed');
    expect(text('.det-news')).toContain('last news at');
  });

  it('does not count on when the experiment is over', () => {
    show(state({ status: 'completed', ended_at: 990, held_s: 32, held_since: null, eta_s: null }));
    vi.advanceTimersByTime(60_000);
    expect(text('.det-line')).toContain('0:32 elapsed');
    expect(text('.det-news')).toBe('');
  });
});

describe('buttons', () => {
  it('asks for what it says', async () => {
    const onCommand = vi.fn<OnCommand>().mockResolvedValue(undefined);
    show(state(), onCommand);
    button('Pause').click();
    await vi.advanceTimersByTimeAsync(0);
    expect(onCommand.mock.calls).toEqual([['pause']]);
  });

  it('does nothing while it is impossible, and tells why', () => {
    const onCommand = vi.fn<OnCommand>().mockResolvedValue(undefined);
    show(state(), onCommand);
    const activate = button('Activate');
    activate.click();
    expect(onCommand).not.toHaveBeenCalled();
    expect(activate.getAttribute('aria-disabled')).toBe('true');
    expect(activate.title).toBe('It is active already.');
  });

  it('are not there when the experiment is over', () => {
    const actions = state().actions.map(action => ({ ...action, enabled: false }));
    const view = show(state({ actions }));
    expect(document.querySelectorAll('.det-buttons button')).toHaveLength(actions.length);
    view.update(state({ status: 'completed', actions }));
    expect(document.querySelectorAll('.det-buttons button')).toHaveLength(0);
  });

  it('asks before it kills, and offers the way back first', () => {
    const onCommand = vi.fn<OnCommand>().mockResolvedValue(undefined);
    show(state(), onCommand);
    button('Kill').click();
    expect(onCommand).not.toHaveBeenCalled();
    expect(document.activeElement?.textContent).toBe('Keep it');
    button('Keep it').click();
    expect(document.activeElement?.textContent).toBe('Kill');
    expect(onCommand).not.toHaveBeenCalled();
    button('Kill').click();
    button('Kill').click();
    expect(onCommand.mock.calls).toEqual([['kill']]);
  });

  it('withdraws the question when the experiment ends meanwhile', () => {
    show(state());
    button('Kill').click();
    const actions = state().actions.map(one => ({ ...one, enabled: false, why: 'It is over.' }));
    view.update(state({ status: 'completed', actions }));
    expect(() => button('Kill')).toThrow('no button');
  });

  it('shows why a request failed', async () => {
    show(state(), () => Promise.reject(new Error('trial 1 is stopping')));
    button('Pause').click();
    await vi.advanceTimersByTimeAsync(0);
    expect(text('[role=alert]')).toBe('trial 1 is stopping');
    expect(button('Pause').getAttribute('aria-busy')).toBeNull();
  });

  it('says what may be in the way of a slow request', async () => {
    show(state(), () => new Promise(() => undefined));
    button('Pause').click();
    expect(button('Pause').getAttribute('aria-busy')).toBe('true');
    await vi.advanceTimersByTimeAsync(3500);
    expect(text('[role=alert]')).toBe('The kernel is busy.');
  });

  it('keeps why one request failed while another one is answered', async () => {
    const answers: Record<string, () => void> = {};
    show(state(), command => {
      const answered = new Promise<void>(resolve => (answers[command] = resolve));
      return command === 'pause' ? answered : Promise.reject(new Error('it is over'));
    });
    button('Pause').click();
    await vi.advanceTimersByTimeAsync(1000);
    button('Kill').click();
    button('Kill').click();
    await vi.advanceTimersByTimeAsync(5000);
    expect(text('[role=alert]')).toBe('it is over');
    answers.pause?.();
    await vi.advanceTimersByTimeAsync(0);
    expect(text('[role=alert]')).toBe('it is over');
  });

  it('keeps the focus when a new state changes the buttons', () => {
    show(state());
    button('Pause').focus();
    const actions = state().actions.map(one => ({ ...one, enabled: !one.enabled }));
    view.update(state({ as_of: 1001, actions }));
    expect(document.activeElement?.textContent).toBe('Pause');
  });
});

describe('charts', () => {
  it('keeps a chart as long as its metric is shown', () => {
    show(state());
    view.update(state({ as_of: 1001, charts: [{ ...chart(series()), title: 'accuracy' }] }));
    expect(charts.map(one => [one.node.textContent, one.isDisposed])).toEqual([
      ['loss', true],
      ['accuracy', false]
    ]);
  });

  it('shows all charts at the range that was zoomed into in one', () => {
    show(state({ charts: [chart(series()), { ...chart(series()), title: 'accuracy' }] }));
    charts[0]?.zoom([1, 2]);
    expect(charts.map(one => one.frames.at(-1)?.range)).toEqual([
      [1, 2],
      [1, 2]
    ]);
    button('Whole run').click();
    expect(charts[1]?.frames.at(-1)?.range).toEqual([0, 3]);
  });

  it('gives the same numbers as a table', () => {
    show(state());
    button('Table').click();
    expect(text('caption')).toBe('loss');
    const rows = [...view.node.querySelectorAll('.det-board tbody tr')];
    expect(rows.map(row => [...row.children].map(cell => cell.textContent))).toEqual([
      ['1', '3.000'],
      ['2', '2.000'],
      ['3', '1.000']
    ]);
  });

  it('says why there are no charts', () => {
    show(state({ charts: [], no_metrics: 'No metrics yet.' }));
    expect(text('.det-empty')).toBe('No metrics yet.');
  });

  it('names the metrics that there was no room for', () => {
    show(state({ more_metrics: ['f1', 'recall'] }));
    expect(text('.det-board > p:last-child')).toBe('2 more metrics: f1, recall');
  });
});

describe('trials', () => {
  it('shows each rank with its slot, process and state', () => {
    show(state());
    const ranks = [...view.node.querySelectorAll('.det-rank')];
    expect(ranks.map(rank => rank.textContent)).toEqual([
      'rank 0: running0cpu 0pid 4200',
      'rank 1: running1cpu 1pid 4201'
    ]);
  });

  it('a rank that hangs is marked, and each offers what to look at it with', () => {
    const run = vi.fn();
    const tool = { label: 'Stacks', caption: 'Show where it is', isLive: true, run };
    const ranks = trial().ranks.map(rank => ({ ...rank, hangs: rank.rank === 1 }));
    const hanging = trial({ id: 7, ranks });
    show(state({ trials: [hanging] }), undefined, [tool]);
    const chips = [...view.node.querySelectorAll<HTMLElement>('.det-rank')];
    expect(chips.map(({ title, dataset }) => [title, dataset.hangs])).toEqual([
      ['rank 0: running', undefined],
      ['rank 1: hangs', '']
    ]);
    const openers = [...view.node.querySelectorAll<HTMLElement>('.det-rank-open')];
    const shown = (): string[] =>
      [...view.node.querySelectorAll<HTMLElement>('.det-rank-tools')]
        .filter(tools => !tools.hidden)
        .map(tools => tools.dataset.rank ?? '');
    expect(shown()).toEqual([]);
    openers[0]?.click();
    openers[1]?.click();
    expect(shown()).toEqual(['1']);
    expect(openers.map(one => one.getAttribute('aria-expanded'))).toEqual(['false', 'true']);
    view.update(state({ trials: [{ ...hanging, steps_completed: 99 }] })); // it is built again
    expect(shown()).toEqual(['1']);
    view.node.querySelectorAll<HTMLElement>('.det-rank-tools button')[1]?.click();
    expect(run).toHaveBeenCalledWith(7, 1);
    view.update(state({ status: 'error', trials: [{ ...hanging, status: 'error' }] }));
    expect(view.node.querySelectorAll('.det-rank-tools')).toHaveLength(0);
  });

  it('says in its sentence what a waiting trial waits for', () => {
    const waiting = trial({
      status: 'queued',
      ranks: [],
      wait: wait({ sentence: 'Needs 4 slots; 2 are free.', expected: '', remedies: [] })
    });
    show(state({ status: 'queued', trials: [waiting] }));
    expect(text('.det-waiting')).toBe('Needs 4 slots; 2 are free.');
  });

  it('says what would start a waiting trial, and leaves the rest alone when that changes', () => {
    const of = (expected: string): IViewState =>
      state({
        status: 'queued',
        trials: [trial({ status: 'queued', ranks: [], wait: wait({ expected }) })]
      });
    show(of('expected to start at 14:34'));
    const section = view.node.querySelector('.det-trial');
    expect(text('.det-waiting')).toContain('expected to start at 14:34');
    expect(text('.det-waiting')).toContain('%det_experiment pause 3');
    view.update(of('expected to start at 14:50'));
    expect(text('.det-waiting')).toContain('expected to start at 14:50');
    expect(view.node.querySelector('.det-trial')).toBe(section);
  });

  it('says for whom a trial makes room', () => {
    show(state({ trials: [trial({ makes_room: 'makes room for experiment 5' })] }));
    expect(text('.det-trial .det-waiting:not([hidden])')).toBe('makes room for experiment 5');
  });

  it('shows the error, where it happened, and the traceback', () => {
    const failure = {
      rank: 1,
      exit_code: 1,
      error: 'ValueError: shapes differ',
      where: 'Cell In[5], line 12, in train_batch',
      traceback: 'Traceback\n  line',
      again: false
    };
    show(state({ status: 'error', trials: [trial({ status: 'error', failure })] }));
    expect(text('.det-failure-error')).toBe('ValueError: shapes differ');
    expect(text('.det-failure .det-quiet')).toBe(
      'rank 1 · Cell In[5], line 12, in train_batch · exit code 1'
    );
    expect(text('.det-failure pre')).toBe('Traceback\n  line');
    const [first, second] = [...view.node.querySelectorAll('.det-rank')];
    expect([first, second].map(rank => rank?.getAttribute('data-status'))).toEqual([
      'running',
      'error'
    ]);
  });

  it('leaves an open traceback alone while nothing of it changed', () => {
    const failure = {
      rank: 0,
      exit_code: 1,
      error: 'E',
      where: '',
      traceback: 'T',
      again: true
    };
    show(state({ trials: [trial({ failure })] }));
    const details = view.node.querySelector('details') as HTMLDetailsElement;
    details.open = true;
    view.update(state({ as_of: 1001, trials: [trial({ failure })] }));
    expect(view.node.querySelector('details')).toBe(details);
    expect(details.open).toBe(true);
  });
});

describe('safety', () => {
  it('shows hostile names as the text they are', () => {
    const name = '<img src=x onerror=alert(1)>';
    const failure = {
      rank: 0,
      exit_code: 1,
      error: name,
      where: name,
      traceback: name,
      again: false
    };
    show(
      state({
        name,
        message: name,
        more_metrics: [name],
        notices: [name],
        alarms: [name],
        num_captured: 1,
        captured: [{ name, cell: name, type: name, size_bytes: 1 }],
        trials: [
          trial({ hparams: name, wait: wait({ sentence: name }), launch_note: name, failure })
        ]
      })
    );
    expect(view.node.querySelectorAll('img, script')).toHaveLength(0);
    expect(text('.det-name')).toBe(name);
  });

  it('leaves nothing behind', () => {
    show(state());
    view.dispose();
    view.dispose();
    expect(document.body.children).toHaveLength(0);
    expect(charts.every(one => one.isDisposed)).toBe(true);
    expect(vi.getTimerCount()).toBe(0);
  });
});
