// @vitest-environment happy-dom
import { expect, it, vi } from 'vitest';

import type { IViewState } from '../src/model/state.js';
import widget from '../src/widget.js';
import { cluster } from './clustersamples.js';
import { row, search, state } from './samples.js';

type Listener = (...args: unknown[]) => void;

/** As anywidget's model, with the kernel played by the test. */
class FakeModel {
  readonly sent: unknown[] = [];
  readonly listeners = new Map<string, Set<Listener>>();

  readonly traits: Record<string, unknown>;

  constructor(state: IViewState) {
    this.traits = {
      document: { version: 1, state },
      patch: { since: 1, operations: [] },
      chosen: null
    };
  }

  get(name: string): unknown {
    return this.traits[name];
  }

  set(name: string, value: unknown): void {
    this.traits[name] = value;
  }

  save_changes(): void {
    this.sent.push({ chosen: this.traits.chosen });
  }

  on(event: string, listener: Listener): void {
    this.listeners.set(event, (this.listeners.get(event) ?? new Set()).add(listener));
  }

  off(event: string, listener: Listener): void {
    this.listeners.get(event)?.delete(listener);
  }

  send(message: unknown): void {
    this.sent.push(message);
  }

  emit(event: string, ...args: unknown[]): void {
    this.listeners.get(event)?.forEach(listener => {
      listener(...args);
    });
  }
}

function render(model: FakeModel): { el: HTMLElement; end: () => void } {
  const el = document.createElement('div');
  document.body.append(el);
  const end = widget.render({ model: model as never, el });
  return { el, end };
}

/** The kernel answers the last question. */
function answer(model: FakeModel, error: string): void {
  const { type, request } = model.sent.at(-1) as { type: string; request: string };
  model.emit('msg:custom', { type, request, error });
}

async function settle(): Promise<void> {
  await new Promise(resolve => setTimeout(resolve, 0));
}

it('redraws when the kernel sets a new state', async () => {
  const model = new FakeModel(state());
  const { el, end } = render(model);
  const paused = state({ status: 'paused', status_word: 'Paused', as_of: 1001 });
  model.set('document', { version: 2, state: paused });
  model.set('patch', { since: 2, operations: [] });
  model.emit('change:document');
  model.emit('change:patch');
  await settle();
  expect(el.querySelector('.det-badge')?.textContent).toBe('Paused');
  end();
});

it('shows slots and queue as soon as the kernel tells of them', async () => {
  const model = new FakeModel(state());
  const { el, end } = render(model);
  const section = el.querySelector<HTMLElement>('.det-cluster');
  expect(section?.hidden).toBe(true);
  const operations = [{ op: 'replace', path: '/cluster', value: cluster() }];
  model.set('patch', { since: 1, operations });
  model.emit('change:patch');
  await settle();
  expect(section?.hidden).toBe(false);
  expect(section?.textContent).toContain('8 slots: 7 used, 1 free');
  end();
});

it('sends a request and shows the reason why the kernel refused it', async () => {
  const model = new FakeModel(state());
  const { el, end } = render(model);
  el.querySelector<HTMLElement>('[data-verb=pause]')?.click();
  expect(model.sent).toMatchObject([{ type: 'command', command: 'pause' }]);
  answer(model, 'it is stopping');
  await settle();
  expect(el.querySelector('[role=alert]')?.textContent).toBe('it is stopping');
  end();
});

it('sends a request that a kernel may have lost again, as the same, until it is answered', () => {
  vi.useFakeTimers();
  const model = new FakeModel(state());
  const { el, end } = render(model);
  el.querySelector<HTMLElement>('[data-verb=pause]')?.click();
  vi.advanceTimersByTime(2000);
  expect(model.sent).toHaveLength(2);
  expect(model.sent[1]).toEqual(model.sent[0]);
  answer(model, '');
  vi.advanceTimersByTime(60_000);
  expect(model.sent).toHaveLength(2);
  end();
  vi.useRealTimers();
});

it('is free for the next request when the kernel has carried one out', async () => {
  const model = new FakeModel(state());
  const { el, end } = render(model);
  el.querySelector<HTMLElement>('[data-verb=pause]')?.click();
  expect(el.querySelector('[data-verb=pause]')?.getAttribute('aria-busy')).toBe('true');
  answer(model, '');
  await settle();
  expect(el.querySelector('[data-verb=pause]')?.getAttribute('aria-busy')).toBeNull();
  end();
});

it('puts a search together from an earlier state and what has changed since', async () => {
  const rows = [row({ id: 1, best: 0.1 }), row({ id: 2, best: 0.2 })];
  const model = new FakeModel(state({ search: search(rows), trials: [] }));
  const { el, end } = render(model);
  const ids = (): (string | null)[] =>
    [...el.querySelectorAll('tr[data-trial]')].map(one => one.getAttribute('data-trial'));
  expect(ids()).toEqual(['2', '1']);
  const operations = [
    { op: 'replace', path: '/search/rows/0/best', value: 0.9 },
    { op: 'add', path: '/search/rows/-', value: row({ id: 3, best: 0.3 }) }
  ];
  model.set('patch', { since: 1, operations });
  model.emit('change:patch');
  await settle();
  expect(ids()).toEqual(['1', '3', '2']);
  end();
});

it('asks for the whole, and leaves what is drawn, when a message of the kernel was lost', async () => {
  const model = new FakeModel(state({ status_word: 'Running' }));
  const { el, end } = render(model);
  const operations = [{ op: 'replace', path: '/status_word', value: 'Paused' }];
  model.set('patch', { since: 2, operations });
  model.emit('change:patch');
  await settle();
  expect(model.sent).toEqual([{ type: 'whole' }]);
  expect(el.querySelector('.det-badge')?.textContent).toBe('Running');
  model.set('document', { version: 2, state: state({}) });
  model.emit('change:document');
  await settle();
  expect(el.querySelector('.det-badge')?.textContent).toBe('Paused');
  end();
});

it('tells the kernel which trial was chosen, and hears it from other views', () => {
  const rows = [row({ id: 1 }), row({ id: 2 })];
  const model = new FakeModel(state({ search: search(rows), trials: [] }));
  const { el, end } = render(model);
  el.querySelector<HTMLElement>('tr[data-trial="2"]')?.click();
  expect(model.sent).toEqual([{ chosen: 2 }]);
  model.set('chosen', 1);
  model.emit('change:chosen');
  expect(el.querySelector('tr[data-trial="1"]')?.getAttribute('aria-selected')).toBe('true');
  expect(model.sent).toHaveLength(1);
  end();
});

it('shows the trial that was chosen before the page was loaded', () => {
  const model = new FakeModel(state({ search: search([row({ id: 1 })]), trials: [] }));
  model.set('chosen', 1);
  const { el, end } = render(model);
  expect(el.querySelector<HTMLElement>('.det-chosen')?.hidden).toBe(false);
  end();
});

it('cleans up after itself', () => {
  const model = new FakeModel(state());
  const { el, end } = render(model);
  end();
  expect(el.children).toHaveLength(0);
  expect([...model.listeners.values()].every(listeners => listeners.size === 0)).toBe(true);
});
