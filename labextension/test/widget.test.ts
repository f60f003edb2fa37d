// @vitest-environment happy-dom
import type { AnyModel } from '@anywidget/types';
import { expect, it } from 'vitest';

import type { IViewState } from '../src/model.js';
import widget from '../src/widget.js';
import { state } from './samples.js';

type Listener = (...args: unknown[]) => void;

/** As anywidget's model, with the kernel played by the test. */
class FakeModel {
  readonly sent: unknown[] = [];
  readonly listeners = new Map<string, Set<Listener>>();

  constructor(public state: IViewState) {}

  get(): IViewState {
    return this.state;
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
  const end = widget.render({ model: model as unknown as AnyModel<{ state: IViewState }>, el });
  return { el, end };
}

async function settle(): Promise<void> {
  await new Promise(resolve => setTimeout(resolve, 0));
}

it('redraws when the kernel sets a new state', () => {
  const model = new FakeModel(state());
  const { el, end } = render(model);
  model.state = state({ status: 'paused', status_word: 'Paused', as_of: 1001 });
  model.emit('change:state');
  expect(el.querySelector('.det-badge')?.textContent).toBe('Paused');
  end();
});

it('sends a request and shows the reason why the kernel refused it', async () => {
  const model = new FakeModel(state());
  const { el, end } = render(model);
  el.querySelector<HTMLElement>('[data-verb=pause]')?.click();
  expect(model.sent).toEqual([{ type: 'command', verb: 'pause' }]);
  model.emit('msg:custom', { type: 'outcome', verb: 'pause', error: 'it is stopping' });
  await settle();
  expect(el.querySelector('[role=alert]')?.textContent).toBe('it is stopping');
  end();
});

it('is free for the next request when the kernel has carried one out', async () => {
  const model = new FakeModel(state());
  const { el, end } = render(model);
  el.querySelector<HTMLElement>('[data-verb=pause]')?.click();
  expect(el.querySelector('[data-verb=pause]')?.getAttribute('aria-busy')).toBe('true');
  model.emit('msg:custom', { type: 'outcome', verb: 'pause', error: '' });
  await settle();
  expect(el.querySelector('[data-verb=pause]')?.getAttribute('aria-busy')).toBeNull();
  end();
});

it('cleans up after itself', () => {
  const model = new FakeModel(state());
  const { el, end } = render(model);
  end();
  expect(el.children).toHaveLength(0);
  expect([...model.listeners.values()].every(listeners => listeners.size === 0)).toBe(true);
});
