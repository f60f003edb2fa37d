/** A browser and a server that the tests play. Import it before what uses them. */
import { vi } from 'vitest';

import type { IExperimentDrawn, IExperimentOptions } from '../../../src/lab/page/drawing.js';
import type { ISocket } from '../../../src/lab/tokens.js';
import { FakeDet } from '../shell/fake.js';

/** JupyterLab without commands. */
export const commands = { execute: vi.fn(), hasCommand: () => false };

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

/** Tells the page that an element is in sight. */
export function sight(target: Element): void {
  observers
    .filter(one => one.targets.has(target))
    .forEach(one => {
      one.callback([{ target, isIntersecting: true } as never], one as never);
    });
}

interface IFollower {
  name: string;
  args: object;
  onVersion: (document: unknown) => void;
  onError: (sentence: string) => void;
  isDisposed: boolean;
}

export class FakeSocket {
  readonly followers: IFollower[] = [];
  readonly ask = vi.fn<ISocket['ask']>();

  follow(
    name: string,
    args: object,
    onVersion: (document: never) => void,
    onError: (sentence: string) => void
  ): object {
    const one: IFollower = {
      ...{ name, args, onError, isDisposed: false },
      onVersion: onVersion as IFollower['onVersion']
    };
    this.followers.push(one);
    return {
      change: (wanted: object) => (one.args = wanted),
      dispose: () => (one.isDisposed = true),
      get isDisposed() {
        return one.isDisposed;
      }
    };
  }

  /** The newest that somebody still follows. */
  get last(): IFollower {
    const found = this.followers.findLast(one => !one.isDisposed);
    if (found === undefined) {
      throw new Error('nothing is followed');
    }
    return found;
  }
}

export class FakeServer extends FakeDet {
  readonly socket = new FakeSocket();
}

export class FakeDrawn implements IExperimentDrawn {
  readonly node = document.createElement('article');
  isDisposed = false;
  readonly calls: unknown[] = [];

  constructor(readonly options: IExperimentOptions) {
    this.node.className = 'det-view';
  }

  setLost(): void {
    this.calls.push('lost');
  }
  openTab(id: string): void {
    this.calls.push(['tab', id]);
  }
  showLogs(trialId: number | null, rank: number | null): void {
    this.calls.push(['logs', trialId, rank]);
  }
  choose(trialId: number | null): void {
    this.calls.push(['choose', trialId]);
  }
  dispose(): void {
    this.isDisposed = true;
    this.node.remove();
  }
}

/** Stands in for the drawing core. */
export class FakeDrawing {
  readonly drawn: FakeDrawn[] = [];

  readonly drawExperiment = (options: IExperimentOptions): FakeDrawn => {
    const made = new FakeDrawn(options);
    this.drawn.push(made);
    return made;
  };

  readonly load = (): Promise<never> => Promise.resolve(this as never);
}

export async function settle(): Promise<void> {
  for (let i = 0; i < 20; i++) {
    await Promise.resolve();
  }
}
