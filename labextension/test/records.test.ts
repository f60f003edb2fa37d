// @vitest-environment happy-dom
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';

import { checkpointsTab } from '../src/tabs/checkpointstab.js';
import { configLines, fittingLines } from '../src/tabs/configtab.js';
import { configTab } from '../src/tabs/configtab.js';
import type { Ask } from '../src/model/questions.js';
import { Settings } from '../src/model/viewsettings.js';
import { english } from '../src/model/trans.js';
import type { IPanel, ITab, ITabContext } from '../src/tabs/tab.js';
import { state } from './samples.js';
import type { ICheckpointView } from '../src/model/answers.js';

const YAML = `name: digits
hyperparameters:
  lr: 0.05
  note: "a  # b: not an origin"
searcher:
  name: single
  max_length: {epochs: 6}
resources:
  slots_per_trial: 2          # template
  priority: 42                # default
  devices:
  - 0
  - 1  # template
`;

let asked: string[];
let answers: unknown[];
let host: HTMLElement;
let panel: IPanel | undefined;

function open(make: (context: ITabContext) => ITab, ...all: unknown[]): void {
  [asked, answers] = [[], all];
  host = document.createElement('div');
  document.body.replaceChildren(host);
  const ask = ((type: string) => {
    asked.push(type);
    const answer = answers.shift();
    if (answer === undefined) {
      return new Promise(() => undefined);
    }
    return answer instanceof Error ? Promise.reject(answer) : Promise.resolve(answer);
  }) as Ask;
  const requests = { trans: english, onCommand: () => Promise.resolve(), slowHint: 'busy' };
  const makeChart = () => ({}) as never;
  panel = make({ requests, ask, settings: new Settings(), makeChart }).open(host);
  panel.setShown?.(true);
  panel.update?.(state());
}

const settle = (ms = 0): Promise<unknown> => vi.advanceTimersByTimeAsync(ms);
const texts = (selector: string): string[] =>
  [...host.querySelectorAll(selector)].map(one => one.textContent);
const said = (): string => host.querySelector(':scope [role=status]')?.textContent ?? '';

beforeEach(() => vi.useFakeTimers());
afterEach(() => {
  panel?.dispose();
  vi.useRealTimers();
});

describe('the configuration', () => {
  it('says of each value who gave it', () => {
    const lines = configLines(YAML).map(({ text, origins }) => [text.trim(), origins.join(' ')]);
    expect(lines).toContainEqual(['lr: 0.05', 'submitted']);
    expect(lines).toContainEqual(['slots_per_trial: 2', 'template']);
    expect(lines).toContainEqual(['priority: 42', 'default']);
    expect(lines).toContainEqual(['- 1', 'template']);
    expect(lines).toContainEqual(['resources:', '']);
    expect(lines).toContainEqual(['note: "a  # b: not an origin"', 'submitted']);
  });

  it('is narrowed down to what fits, in its sections', () => {
    const lines = configLines(YAML);
    const found = (text: string, origin: 'default' | 'template' | null = null): string[] =>
      fittingLines(lines, text, origin).map(line => line.text.trim());
    expect(found('LR')).toEqual(['hyperparameters:', 'lr: 0.05']);
    expect(found('searcher')).toEqual(['searcher:', 'name: single', 'max_length: {epochs: 6}']);
    expect(found('', 'default')).toEqual(['resources:', 'priority: 42']);
    expect(found('slots', 'default')).toEqual([]);
    expect(found('').length).toBe(lines.length);
  });

  it('is asked for once, when the tab is opened', async () => {
    open(configTab, { yaml: YAML, template: 'small', notices: ['profiling has no effect'] });
    panel?.update?.(state({ as_of: 2000 }));
    await settle();
    expect(asked).toEqual(['config']);
    expect(texts('.det-config-line').length).toBe(13);
    expect(host.textContent).toContain('template small');
    expect(host.textContent).toContain('profiling has no effect');
    const search = host.querySelector('input') as HTMLInputElement;
    search.value = 'nothing like it';
    search.dispatchEvent(new Event('input'));
    expect(said()).toBe('No match.');
  });

  it('says what is in the way, and asks again with the next state', async () => {
    open(configTab, new Error('no experiment 7'));
    await settle();
    expect(said()).toBe('no experiment 7');
    panel?.update?.(state());
    expect(asked.length).toBe(2);
    await settle(3000);
    expect(said()).toBe('busy');
  });
});

describe('checkpoints', () => {
  const NONE = { registered: {}, models: [] };
  const one = (changes: Partial<ICheckpointView> = {}): ICheckpointView => ({
    uuid: 'c',
    experiment_id: 1,
    trial_id: 3,
    steps_completed: 100,
    path: '/data/checkpoints/c',
    size_bytes: 2_500_000,
    created_at: 1000,
    searcher_metric: 0.91,
    state: 'COMPLETED',
    globs: [],
    is_placed: false,
    former: '',
    is_foreign: false,
    ...changes
  });

  it('are a table with the best one marked, and lines that load it', async () => {
    const best = one({ uuid: 'best', steps_completed: 80, path: '/data/"best"' });
    const gone = one({ uuid: 'gone', state: 'DELETED', searcher_metric: null });
    const part = one({ uuid: 'part', state: 'PARTIALLY_DELETED' });
    open(checkpointsTab, {
      checkpoints: [one(), best, gone, part],
      total: 6,
      best: 'best',
      ...NONE
    });
    await settle();
    const rows = texts('tbody tr');
    expect(rows.filter(row => row.includes('★ best'))).toEqual([rows[1]]);
    expect(rows[2]).toContain('deleted');
    expect(rows[2]).not.toContain('/data');
    expect(rows[3]).toContain('deleted in part');
    expect(rows[3]).toContain('/data/checkpoints/c');
    expect(texts('thead th')[2]).toBe('accuracy');
    expect(texts('pre')[0]).toContain('load_checkpoint("/data/\\"best\\"")');
    expect(said()).toBe('2 older ones');
  });

  it('are asked for again when there is a new one', async () => {
    open(checkpointsTab, { checkpoints: [], total: 0, best: '', ...NONE });
    await settle();
    expect(said()).toBe('Nothing was saved yet.');
    panel?.update?.(state({ as_of: 2000 }));
    expect(asked.length).toBe(1);
    panel?.update?.(state({ checkpoints: { ...state().checkpoints, count: 1 } }));
    expect(asked.length).toBe(2);
    panel?.setShown?.(false);
    panel?.update?.(state({ checkpoints: { ...state().checkpoints, count: 2 } }));
    expect(asked.length).toBe(2);
  });

  it('become versions of models, of which there may be none yet', async () => {
    const kept = one({ uuid: 'kept' });
    const shown = {
      checkpoints: [kept, one({ uuid: 'gone', state: 'DELETED' })],
      total: 2,
      best: ''
    };
    open(
      checkpointsTab,
      { ...shown, registered: {}, models: ['digits'] },
      new Error('checkpoint kept is version 1 of model digits already'),
      { model: 'digits', number: 2 },
      { ...shown, registered: { kept: ['digits 2'] }, models: ['digits'] }
    );
    await settle();
    const buttons = [...host.querySelectorAll<HTMLElement>('td button')];
    const register = buttons.filter(button => button.textContent === 'Register…');
    expect(register.length).toBe(1); // what is deleted cannot be registered
    register[0]?.click();
    const form = host.querySelector('form');
    expect(form?.textContent).toContain('at step 100');
    expect(form?.querySelector('input')?.value).toBe('digits');
    form?.requestSubmit();
    await settle();
    expect(texts('[role=alert]')).toEqual(['checkpoint kept is version 1 of model digits already']);
    form?.requestSubmit();
    await settle();
    expect(texts('.det-register')).toEqual(['Registered as version 2 of model digits.']);
    expect(texts('td .det-label')).toEqual(['digits 2']);
    expect(asked).toEqual(['checkpoints', 'register', 'register', 'checkpoints']);
  });

  it('copies a path; without a clipboard it is selected', async () => {
    open(checkpointsTab, { checkpoints: [one()], total: 1, best: '', ...NONE });
    await settle();
    const write = vi.fn().mockResolvedValueOnce(undefined).mockRejectedValueOnce(new Error('no'));
    vi.stubGlobal('navigator', { clipboard: { writeText: write } });
    const button = host.querySelector('.det-path-cell button') as HTMLElement;
    button.click();
    await settle();
    expect(write.mock.calls).toEqual([['/data/checkpoints/c']]);
    expect(button.textContent).toBe('Copied');
    await settle(5000);
    expect(button.textContent).toBe('Copy');
    button.click();
    await settle();
    expect(button.textContent).toContain('Ctrl+C');
    vi.unstubAllGlobals();
  });
});
