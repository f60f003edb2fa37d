// @vitest-environment happy-dom
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';

import { LogLines, MAX_LINES, type AskLogs } from '../src/logs/lines.js';
import type { ILogQuery } from '../src/logs/lines.js';
import { Folding } from '../src/logs/folding.js';
import { LogPanel } from '../src/logs/logspanel.js';
import { Questions, type Ask } from '../src/model/questions.js';
import { english } from '../src/model/trans.js';
import { ExperimentView } from '../src/view.js';
import { row, search, state, trial } from './samples.js';
import type { ILogLine, ILogPage } from '../src/model/answers.js';

function line(id: number, changes: Partial<ILogLine> = {}): ILogLine {
  const text = `line ${id}`;
  return {
    id,
    at: 0,
    trial_id: 3,
    run: 1,
    rank: 0,
    text,
    level: null,
    is_open: false,
    agent: '',
    ...changes
  };
}

function page(lines: ILogLine[], changes: Partial<ILogPage> = {}): ILogPage {
  const last_id = lines.at(-1)?.id ?? 0;
  return { lines, total: lines.length, last_id, is_over: false, ...changes };
}

/** The kernel: answers with these pages, one after the other, and keeps what it was asked for. */
class Kernel {
  readonly asked: ILogQuery[] = [];
  errors: ILogLine[] = [];

  constructor(private readonly _pages: (ILogPage | Error)[]) {}

  readonly ask = (query: ILogQuery): Promise<ILogPage> => {
    if (query.first !== undefined) {
      return Promise.resolve(page(this.errors));
    }
    this.asked.push(query);
    const next = this._pages.shift();
    if (next === undefined) {
      return new Promise(() => undefined); // it is busy
    }
    return next instanceof Error ? Promise.reject(next) : Promise.resolve(next);
  };
}

function open(...pages: (ILogPage | Error)[]): { panel: LogPanel; kernel: Kernel } {
  const kernel = new Kernel(pages);
  const panel = new LogPanel({ trans: english, ask: kernel.ask, slowHint: 'The kernel is busy.' });
  document.body.append(panel.node);
  panel.update(state({ trials: [trial({ id: 3 }), trial({ id: 4 })] }));
  panel.setShown(true);
  return { panel, kernel };
}

const shown = (panel: LogPanel): string[] =>
  [...panel.node.querySelectorAll('.det-log-line')].map(one => one.lastChild?.textContent ?? '');
const status = (panel: LogPanel): string =>
  panel.node.querySelector('[role=status]')?.textContent ?? '';
const field = (panel: LogPanel, label: string): HTMLInputElement =>
  panel.node.querySelector(`[aria-label^="${label}"]`) as HTMLInputElement;

beforeEach(() => vi.useFakeTimers());
afterEach(() => {
  document.body.replaceChildren();
  vi.useRealTimers();
});

it('asks for nothing until it is opened, and not after it was closed', async () => {
  const kernel = new Kernel([page([line(1)])]);
  const panel = new LogPanel({ trans: english, ask: kernel.ask, slowHint: '' });
  panel.update(state());
  expect(kernel.asked).toEqual([]);
  panel.setShown(true);
  await vi.advanceTimersByTimeAsync(0);
  expect(shown(panel)).toEqual(['line 1']);
  panel.setShown(false);
  await vi.advanceTimersByTimeAsync(5000);
  expect(kernel.asked.length).toBe(1);
});

it('adds what is new each second and says how many lines there are', async () => {
  const { panel, kernel } = open(page([line(8), line(9)], { total: 4312 }), page([line(10)]));
  await vi.advanceTimersByTimeAsync(0);
  expect(status(panel)).toBe('2 of 4,312 lines');
  await vi.advanceTimersByTimeAsync(1000);
  expect(shown(panel)).toEqual(['line 8', 'line 9', 'line 10']);
  expect(status(panel)).toBe('3 of 4,313 lines');
  expect(kernel.asked.map(one => one.after)).toEqual([0, 9]);
  expect(panel.node.querySelector('.det-log-line')?.textContent).toContain('trial 3 rank 0');
});

it('asks no more when no line can come', async () => {
  const { panel, kernel } = open(page([line(1)], { is_over: true }));
  await vi.advanceTimersByTimeAsync(60_000);
  expect(kernel.asked.length).toBe(1);
  expect(status(panel)).toBe('1 line');
});

it('shows a progress bar as one line that changes', async () => {
  const { panel } = open(
    page([line(1, { text: ' 10%', is_open: true }), line(2, { rank: 1 })]),
    page([line(3, { text: '100%' })])
  );
  await vi.advanceTimersByTimeAsync(1000);
  expect(shown(panel)).toEqual(['line 2', '100%']);
  expect(status(panel)).toBe('2 lines');
});

it('says which rank has printed nothing', async () => {
  const { panel } = open(page([line(1)]), page([]), page([], { is_over: true }));
  await vi.advanceTimersByTimeAsync(0);
  panel.narrow(4, 1);
  await vi.advanceTimersByTimeAsync(0);
  expect(status(panel)).toBe('Rank 1 has printed nothing yet.');
  panel.update({ ...state(), status: 'completed' });
  panel.narrow(4, null);
  await vi.advanceTimersByTimeAsync(0);
  expect(status(panel)).toBe('Trial 4 has printed nothing.');
});

it('asks anew when the reader narrows it down', async () => {
  const { panel, kernel } = open(page([line(1)]), page([]), page([], { is_over: true }));
  await vi.advanceTimersByTimeAsync(0);
  field(panel, 'Trial').value = '4';
  field(panel, 'Rank').value = '1';
  field(panel, 'Level').value = 'error';
  field(panel, 'Level').dispatchEvent(new Event('change'));
  await vi.advanceTimersByTimeAsync(0);
  expect(shown(panel)).toEqual([]);
  expect(status(panel)).toBe('No match.');
  field(panel, 'Search').value = 'loss';
  field(panel, 'Search').dispatchEvent(new Event('input'));
  await vi.advanceTimersByTimeAsync(400);
  expect(kernel.asked.slice(1)).toEqual([
    { trial_id: 4, rank: 1, agent: null, level: 'error', search: '', after: 0, tail: MAX_LINES },
    { trial_id: 4, rank: 1, agent: null, level: 'error', search: 'loss', after: 0, tail: MAX_LINES }
  ]);
});

it('says why a search was refused, and what delays an answer', async () => {
  const { panel } = open(new Error('search: got /(/'));
  await vi.advanceTimersByTimeAsync(0);
  expect(status(panel)).toBe('search: got /(/');
  await vi.advanceTimersByTimeAsync(5000 + 3000); // it is asked again, and does not answer
  expect(status(panel)).toBe('The kernel is busy.');
});

it('stays where the reader has scrolled to, and goes to the end on request', async () => {
  const { panel } = open(page([line(1)]), page([line(2)]), page([line(3)]));
  const box = panel.node.querySelector<HTMLElement>('[role=log]') as HTMLElement;
  let height = 1000;
  Object.defineProperty(box, 'scrollHeight', { get: () => height });
  Object.defineProperty(box, 'clientHeight', { get: () => 100 });
  await vi.advanceTimersByTimeAsync(0);
  expect(box.scrollTop).toBe(1000);
  const toEnd = panel.node.querySelector('.det-log-foot button') as HTMLButtonElement;
  expect(toEnd.hidden).toBe(true);
  box.scrollTop = 200;
  box.dispatchEvent(new Event('scroll'));
  expect(toEnd.hidden).toBe(false);
  height = 2000;
  await vi.advanceTimersByTimeAsync(1000);
  expect(box.scrollTop).toBe(200);
  toEnd.click();
  expect(box.scrollTop).toBe(2000);
});

it('keeps a bounded number of lines', () => {
  const lines = new LogLines();
  lines.add(page(Array.from({ length: MAX_LINES }, (_, i) => line(i + 1))));
  const { added, gone } = lines.add(page([line(2000), line(2001)]));
  expect(added.map(one => one.id)).toEqual([2000, 2001]);
  expect(gone.map(one => one.id)).toEqual([1, 2]);
  expect(lines.lines.length).toBe(MAX_LINES);
  expect(lines.total).toBe(MAX_LINES + 2);
});

it('filters by the agents of lines, if there are several', async () => {
  const { panel, kernel } = open(
    page([line(1, { agent: 'b' })]),
    page([line(2, { agent: 'a' })]),
    page([line(2, { agent: 'a' })])
  );
  await vi.advanceTimersByTimeAsync(0);
  const agents = field(panel, 'Agent') as unknown as HTMLSelectElement;
  expect(agents.hidden).toBe(true);
  await vi.advanceTimersByTimeAsync(1500);
  expect(agents.hidden).toBe(false);
  expect([...agents.options].map(one => one.text)).toEqual(['all agents', 'agent a', 'agent b']);
  agents.value = 'a';
  agents.dispatchEvent(new Event('change'));
  await vi.advanceTimersByTimeAsync(0);
  expect(kernel.asked.at(-1)).toMatchObject({ agent: 'a', after: 0 });
});

it('is opened at the trial and rank of a failure', async () => {
  const kernel = new Kernel([page([line(1, { trial_id: 5, rank: 6 })])]);
  const view = new ExperimentView({
    onCommand: () => Promise.resolve(),
    makeChart: () => ({ node: document.createElement('div') }) as never,
    ask: ((_type: string, asked: object) => kernel.ask(asked as ILogQuery)) as Ask
  });
  document.body.append(view.node);
  const failure = {
    rank: 6,
    exit_code: 1,
    error: 'ValueError: no',
    where: '',
    traceback: '',
    again: false
  };
  view.update(state({ charts: [], trials: [trial({ id: 5, status: 'error', failure })] }));
  const button = [...view.node.querySelectorAll('button')].find(
    one => one.textContent === 'Logs of rank 6'
  );
  button?.click();
  await vi.advanceTimersByTimeAsync(0);
  expect(view.node.querySelector('[aria-selected=true]')?.textContent).toBe('Logs');
  expect(kernel.asked).toEqual([
    { trial_id: 5, rank: 6, agent: null, level: null, search: '', after: 0, tail: MAX_LINES }
  ]);
  expect(document.activeElement?.getAttribute('role')).toBe('log');
  view.dispose();
});

it('folds equal lines of several ranks into one that says how many', async () => {
  const of = (id: number, rank: number, text: string): ILogLine => line(id, { rank, text });
  const { panel } = open(
    page([of(1, 0, 'seed 7'), of(2, 1, 'seed 7'), of(3, 0, 'ready'), of(4, 3, 'seed 7')]),
    page([of(5, 1, 'ready'), of(6, 1, 'ready'), line(7, { text: 'seed 7', rank: 5, run: 2 })])
  );
  await vi.advanceTimersByTimeAsync(1000);
  const lines = [...panel.node.querySelectorAll<HTMLElement>('.det-log-line')];
  expect(lines.map(one => one.textContent.replace(/^\S+ /, ''))).toEqual([
    'trial 3 ×3 ranks seed 7',
    'trial 3 ×2 ranks ready',
    'trial 3 rank 1 ready',
    'trial 3 rank 5 seed 7'
  ]);
  expect(lines[0]?.title).toBe('ranks 0–1, 3');
});

it('keeps a fold as long as one of its lines', () => {
  const folding = new Folding();
  const fold = folding.add(line(1));
  expect(folding.add(line(2, { rank: 1, text: 'line 1' }))).toBe(fold);
  expect(folding.drop(1)).toBeNull();
  expect(folding.drop(2)).toBe(fold);
  expect(folding.drop(2)).toBeNull();
});

describe('the first error', () => {
  const error = (id: number, text: string, rank = 1): ILogLine =>
    line(id, { text, rank, level: 'error' });
  const pinned = (panel: LogPanel): HTMLElement =>
    panel.node.querySelector('.det-first-error') as HTMLElement;

  it('is pinned with the message of its traceback, as soon as it is printed', async () => {
    const traceback = [
      error(2, 'Traceback (most recent call last):'),
      error(3, 'another rank is gone', 0),
      error(4, '  File "Cell In[5]", line 12, in train_batch'),
      error(5, 'ValueError: no')
    ];
    const { panel } = open(page([line(1)]), page(traceback), page([error(9, 'later')]));
    await vi.advanceTimersByTimeAsync(0);
    expect(pinned(panel).hidden).toBe(true);
    await vi.advanceTimersByTimeAsync(2000);
    expect(pinned(panel).textContent).toMatch(/^First error, .*, trial 3 rank 1: ValueError: no/);
    pinned(panel).querySelector('button')?.click();
    expect(panel.node.querySelector('.det-mod-found')?.textContent).toContain('Traceback');
  });

  it('is shown with the lines around it where it is older than all that are shown', async () => {
    const kernel = new Kernel([
      page([line(5000)]),
      page([line(990), error(1000, 'E')]),
      page([line(5000)])
    ]);
    kernel.errors = [error(1000, 'E')];
    const panel = new LogPanel({ trans: english, ask: kernel.ask, slowHint: '' });
    panel.setShown(true);
    await vi.advanceTimersByTimeAsync(0);
    pinned(panel).querySelector('button')?.click();
    await vi.advanceTimersByTimeAsync(10_000);
    expect(shown(panel)).toEqual(['line 990', 'E']);
    expect(kernel.asked.slice(1)).toMatchObject([{ trial_id: 3, after: 800, tail: null }]);
    expect(panel.node.querySelector('.det-mod-found')?.textContent).toContain('E');
    panel.node.querySelector<HTMLElement>('.det-log-foot button')?.click();
    await vi.advanceTimersByTimeAsync(0);
    expect(shown(panel)).toEqual(['line 5000']);
    panel.dispose();
  });
});

it('offers all trials of a search', () => {
  const { panel } = open();
  panel.update(state({ trials: [], search: search([row({ id: 12 }), row({ id: 7 })]) }));
  const options = [...panel.node.querySelectorAll('[aria-label=Trial] option')];
  expect(options.map(one => one.textContent)).toEqual(['all trials', 'trial 7', 'trial 12']);
});

/** A model of the kernel's, with what is sent to it, and what takes its answers. */
function makeModel() {
  const listeners: ((message: unknown) => void)[] = [];
  const sent: { request: string }[] = [];
  const model = {
    on: (_name: string, listener: (message: unknown) => void) => listeners.push(listener),
    off: () => undefined,
    send: (message: { request: string }) => sent.push(message)
  } as unknown as ConstructorParameters<typeof Questions>[0];
  const answer = (request: string, lines: ILogLine[]): void =>
    listeners.forEach(listener => listener({ type: 'logs', request, error: '', ...page(lines) }));
  return { model, sent, answer };
}

const query: ILogQuery = {
  trial_id: null,
  rank: null,
  agent: null,
  level: null,
  search: '',
  after: 0,
  tail: 1
};

const asking =
  (model: ConstructorParameters<typeof Questions>[0]): AskLogs =>
  asked =>
    new Questions(model).ask('logs', asked);

it('takes no answer that is for another view of the same model', async () => {
  const { model, sent, answer } = makeModel();
  const answers = [asking(model)(query), asking(model)(query)];
  sent.forEach(({ request }, i) => answer(request, [line(i)]));
  const pages = await Promise.all(answers);
  expect(pages.map(one => one.lines.map(({ id }) => id))).toEqual([[0], [1]]);
});

it('sends a request again that the kernel has lost, until it is answered', async () => {
  const { model, sent, answer } = makeModel();
  const asked = asking(model)(query);
  await vi.advanceTimersByTimeAsync(2000);
  expect(sent.length).toBe(2);
  expect(sent[1]).toEqual(sent[0]);
  answer((sent[1] as { request: string }).request, [line(1)]);
  expect((await asked).lines.length).toBe(1);
  await vi.advanceTimersByTimeAsync(20_000);
  expect(sent.length).toBe(2);
});
