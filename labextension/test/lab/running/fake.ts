/** A connection whose trials the tests set. */
import { nullTranslator } from '@jupyterlab/translation';
import { DisposableDelegate, type IDisposable } from '@lumino/disposable';
import { Signal } from '@lumino/signaling';
import { vi } from 'vitest';

import type { IApi, IDetJupyter, ILink, ISocket } from '../../../src/lab/tokens.js';
import type { IRankLine, ITrialLine } from '../../../src/model/state.js';

export function rank(number: number, fields: Partial<IRankLine> = {}): IRankLine {
  return {
    rank: number,
    pid: 1000 + number,
    agent_id: 'agent',
    slot: `GPU ${number}`,
    device: `cuda:${number}`,
    status: 'running',
    hangs: false,
    has_kernel: true,
    ...fields
  };
}

export function trial(id: number, fields: Partial<ITrialLine> = {}): ITrialLine {
  return {
    id,
    experiment_id: 10 + id,
    experiment: 'digits',
    status: 'running',
    status_word: 'Running',
    alarm: '',
    alarm_kind: '',
    steps_completed: 1200,
    progress: 0.256,
    ranks: [rank(0), rank(1)],
    ...fields
  };
}

export class FakeDet {
  readonly get = vi.fn<IApi['get']>().mockResolvedValue({ experiment_id: 11, state: 'ACTIVE' });
  readonly post = vi.fn<IApi['post']>().mockResolvedValue({});
  readonly api = { get: this.get, post: this.post } as unknown as IApi;
  readonly ask = vi.fn<ISocket['ask']>();
  readonly socket = { ask: this.ask } as unknown as ISocket;
  confirmKill = true;
  readonly settings = { get: () => this.confirmKill };
  readonly trans = nullTranslator.load('det_jupyter');
  readonly linkChanged = new Signal<this, ILink>(this);
  link: ILink = { state: 'up', sentence: '', command: '', mayWrite: true };
  readonly followers = new Set<(trials: readonly ITrialLine[]) => void>();

  followTrials(onNews: (trials: readonly ITrialLine[]) => void): IDisposable {
    this.followers.add(onNews);
    return new DisposableDelegate(() => this.followers.delete(onNews));
  }

  say(...trials: ITrialLine[]): void {
    this.followers.forEach(follower => follower(trials));
  }

  setLink(link: Partial<ILink>): void {
    this.link = { ...this.link, ...link };
    this.linkChanged.emit(this.link);
  }

  get asDet(): IDetJupyter {
    return this as unknown as IDetJupyter;
  }
}
