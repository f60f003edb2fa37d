// @vitest-environment happy-dom
import { afterEach, describe, expect, it, vi } from 'vitest';

/** Tells the page that an element is in sight, or is not. */
const sight = vi.hoisted(() => {
  const observers: { callback: IntersectionObserverCallback; targets: Set<Element> }[] = [];
  class FakeObserver {
    readonly targets = new Set<Element>();
    constructor(readonly callback: IntersectionObserverCallback) {
      observers.push(this);
    }
    observe(target: Element): void {
      this.targets.add(target);
    }
    unobserve(target: Element): void {
      this.targets.delete(target);
    }
    disconnect(): void {
      this.targets.clear();
    }
  }
  globalThis.IntersectionObserver = FakeObserver as never;
  return (target: Element, isIntersecting = true): void => {
    observers
      .filter(one => one.targets.has(target))
      .forEach(one => {
        one.callback([{ target, isIntersecting } as never], one as never);
      });
  };
});

import { keepPicture, watchLink } from '../src/host.js';
import { places, type ISource, type IView } from '../src/places.js';

class FakeView implements IView {
  readonly node = document.createElement('section');
  isLost = false;
  isDisposed = false;
  setLost(isLost: boolean): void {
    this.isLost = isLost;
  }
  dispose(): void {
    this.isDisposed = true;
  }
}

function source(key: string): ISource & { views: FakeView[] } {
  const views: FakeView[] = [];
  return {
    key,
    views,
    open: () => {
      const view = new FakeView();
      view.node.append(document.createElement('input'));
      views.push(view);
      return view;
    }
  };
}

const html = (key: string, card = 'card'): string =>
  `<det-experiment key="${key}" style="display:block"><p>${card}</p></det-experiment>`;

/** An output of a notebook. */
function output(key: string): HTMLElement {
  const host = document.createElement('div');
  document.body.append(host);
  host.innerHTML = html(key);
  return host;
}

afterEach(() => {
  document.body.replaceChildren();
});

it('has the styles of HTML outputs for its card alone', () => {
  places();
  const host = output('91@5');
  host.className = 'jp-RenderedHTML jp-RenderedHTMLCommon';
  expect(host.classList).toContain('jp-RenderedHTMLCommon');
  const one = source('91@5');
  places().add(one);
  expect(host.className).toBe('jp-RenderedHTML');
  places().remove(one);
});

it('shows the card of a place until a kernel draws its experiment, wherever that is', () => {
  places();
  const [first, second, other] = [output('1@5'), output('1@5'), output('2@5')];
  expect(first.textContent).toBe('card');
  const one = source('1@5');
  places().add(one);
  const third = output('1@5');
  expect([first, second, third].map(host => host.querySelectorAll('section').length)).toEqual([
    1, 1, 1
  ]);
  expect(other.textContent).toBe('card');
  places().remove(one);
});

it('keeps the view of a kernel that is gone, and replaces it by that of the next', () => {
  const host = output('3@5');
  const [old, next] = [source('3@5'), source('3@5')];
  places().add(old);
  places().remove(old);
  expect(old.views[0]?.isLost).toBe(true);
  expect(host.contains(old.views[0]?.node ?? null)).toBe(true);
  places().add(next);
  expect(old.views[0]?.isDisposed).toBe(true);
  expect(host.contains(next.views[0]?.node ?? null)).toBe(true);
  places().remove(next);
});

it('goes on with the view of a kernel that can be reached again', () => {
  output('4@5');
  const one = source('4@5');
  places().add(one);
  places().remove(one);
  places().add(one);
  expect(one.views.map(view => view.isLost)).toEqual([false]);
  places().remove(one);
});

it('moves the view, with the focus, when the output is drawn again', () => {
  const host = output('5@5');
  const one = source('5@5');
  places().add(one);
  const input = host.querySelector('input');
  input?.focus();
  input?.dispatchEvent(new FocusEvent('focusout', { bubbles: true })); // as browsers do at removal
  host.innerHTML = html('5@5', 'newer');
  expect(one.views).toHaveLength(1);
  expect(host.querySelector('input')).toBe(input);
  expect(document.activeElement).toBe(input);
  places().remove(one);
});

it('ends a view some time after its output has gone', () => {
  vi.useFakeTimers();
  const host = output('6@5');
  const one = source('6@5');
  places().add(one);
  host.remove();
  expect(one.views[0]?.isDisposed).toBe(false);
  vi.advanceTimersByTime(5000);
  expect(one.views[0]?.isDisposed).toBe(true);
  places().remove(one);
  vi.useRealTimers();
});

it('asks kernels for what comes into sight and nothing draws', () => {
  const host = output('7@5');
  const place = host.firstElementChild as Element;
  const asked: string[] = [];
  const close = places().addDoor(key => void asked.push(key));
  expect(asked).toEqual([]);
  sight(place);
  expect(asked).toEqual(['7@5']);
  const later: string[] = [];
  const closeLater = places().addDoor(key => void later.push(key));
  expect(later).toEqual(['7@5']);
  const one = source('7@5');
  places().add(one);
  sight(place);
  expect(asked).toHaveLength(1);
  close();
  closeLater();
  places().remove(one);
});

class Signal {
  readonly slots = new Set<(sender: unknown, args: string) => void>();
  connect(slot: (sender: unknown, args: string) => void): void {
    this.slots.add(slot);
  }
  disconnect(slot: (sender: unknown, args: string) => void): void {
    this.slots.delete(slot);
  }
  emit(args: string): void {
    [...this.slots].forEach(slot => {
      slot(null, args);
    });
  }
}

class FakeOutput {
  constructor(public data: Record<string, unknown>) {}
  toJSON(): object {
    return { output_type: 'display_data', metadata: {}, data: this.data };
  }
}

/** A model in JupyterLab, with the parts of it that we look at. */
function lab(traits: Record<string, unknown>, saved: Record<string, unknown>[] = []) {
  const signals = [new Signal(), new Signal(), new Signal()] as const;
  const [statusChanged, kernelChanged, connectionStatusChanged] = signals;
  const outputs = {
    items: saved.map(data => new FakeOutput(data)),
    sets: [] as number[],
    get length(): number {
      return this.items.length;
    },
    get(i: number): FakeOutput | undefined {
      return this.items[i];
    },
    set(i: number, value: { data: Record<string, unknown> }): void {
      this.sets.push(i);
      this.items[i] = new FakeOutput(value.data);
    }
  };
  const real = { comm_live: true };
  const model = {
    get: (name: string) => traits[name],
    on: () => undefined,
    off: () => undefined,
    widget_manager: {
      context: {
        ready: Promise.resolve(),
        model: { cells: [{}, { outputs }] },
        sessionContext: { statusChanged, kernelChanged, connectionStatusChanged }
      },
      get_model: () => Promise.resolve(real)
    }
  };
  return { model: model as never, real, signals, outputs };
}

async function settle(): Promise<void> {
  await new Promise(resolve => setTimeout(resolve, 0));
}

it.each(['restarting', 'autorestarting', 'terminating', 'dead'])(
  'a kernel that is %s has lost its models for good',
  async status => {
    const { model, signals } = lab({ own_id: 'a' });
    const heard: boolean[] = [];
    const end = watchLink(model, isUp => heard.push(isUp));
    await settle();
    signals[0].emit('busy');
    signals[0].emit(status);
    signals[2].emit('connected');
    expect(heard).toEqual([true, false]);
    end();
    expect(signals.every(signal => signal.slots.size === 0)).toBe(true);
  }
);

it('a kernel that cannot be reached for a while comes back', async () => {
  const { model, signals } = lab({ own_id: 'a' });
  const heard: boolean[] = [];
  watchLink(model, isUp => heard.push(isUp));
  await settle();
  ['connecting', 'disconnected', 'connected'].forEach(status => {
    signals[2].emit(status);
  });
  signals[1].emit('another kernel');
  expect(heard).toEqual([true, false, true, false]);
});

it('a model that was saved with the notebook has no kernel', async () => {
  const { model, real } = lab({ own_id: 'a' });
  real.comm_live = false;
  const heard: boolean[] = [];
  watchLink(model, isUp => heard.push(isUp));
  await settle();
  expect(heard).toEqual([false]);
});

it('puts the newest picture into the outputs of its experiment, once', async () => {
  const kept = { 'text/html': html('8@5', 'newer'), 'text/plain': 'newer' };
  const saved = [html('8@5'), html('88@5'), '<p>else</p>'].map(text => ({ 'text/html': text }));
  const { model, outputs } = lab({ key: '8@5', kept }, [...saved, { 'text/plain': '1' }]);
  await keepPicture(model);
  await keepPicture(model);
  expect(outputs.sets).toEqual([0]);
  expect(outputs.items[0]?.data).toEqual(kept);
});

it('leaves outputs alone while there is no picture yet', async () => {
  const { model, outputs } = lab({ key: '8@5', kept: {} }, [{ 'text/html': html('8@5') }]);
  await keepPicture(model);
  expect(outputs.sets).toEqual([]);
});

describe('sources of different ranks', () => {
  const ranked = (key: string, rank: number): ReturnType<typeof source> & { rank: number } =>
    Object.assign(source(key), { rank });

  it('draws the highest, and goes back to the other when that is gone', () => {
    const host = output('20@5');
    const [kernel, server] = [source('20@5'), ranked('20@5', 1)];
    places().add(server);
    places().add(kernel);
    expect(kernel.views).toEqual([]);
    places().remove(server);
    expect(server.views[0]?.isDisposed).toBe(true);
    expect(host.contains(kernel.views[0]?.node ?? null)).toBe(true);
    places().add(server);
    expect(host.contains(server.views[1]?.node ?? null)).toBe(true);
    expect(host.querySelectorAll('section')).toHaveLength(1);
    places().remove(server);
    places().remove(kernel);
  });

  it('tells each whether it is the one that draws', () => {
    const used: boolean[] = [];
    const kernel = { ...source('21@5'), setUsed: (isUsed: boolean) => void used.push(isUsed) };
    const server = ranked('21@5', 1);
    places().add(kernel);
    places().add(server);
    places().remove(server);
    expect(used).toEqual([true, false, true]);
    places().remove(kernel);
  });

  it('asks doors of a higher rank for what is drawn by a lower one, and waits for them a little', () => {
    vi.useFakeTimers();
    const asked: string[] = [];
    const close = places().addDoor(key => {
      asked.push(key);
      return true;
    }, 1);
    const kernel = source('22@5');
    places().add(kernel);
    output('22@5');
    expect(asked).toContain('22@5');
    expect(kernel.views).toEqual([]);
    vi.advanceTimersByTime(2000);
    expect(kernel.views).toHaveLength(1);
    close();
    places().remove(kernel);
    vi.useRealTimers();
  });
});
