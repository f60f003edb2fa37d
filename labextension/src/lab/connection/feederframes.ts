/** Types of frames between this page and the feeder; det_jupyter/contract/messages/pages.py documents them. */
import type { IHello, IMasterState } from '../../model/answers.js';

export type Incoming =
  | IHello
  | ({ op: 'master' } & IMasterState)
  | { op: 'news'; id: number; seq: number; data: unknown }
  | { op: 'error'; id: number; error: string }
  | { op: 'answer'; id: number; error: string; data: unknown }
  | { op: 'pong' };

export type Outgoing =
  | { op: 'follow'; id: number; topic: string; args: object; since?: number }
  | { op: 'ack'; id: number; seq: number }
  | { op: 'leave'; id: number }
  | { op: 'ask'; id: number; experiment_id: number; question: object }
  | { op: 'ping' };
