/** Types of frames between this page and the reader; det_jupyter/contract/messages/pages.py documents them. */
import type { IHello, IMasterState } from '../../model/answers.js';
import type { Patch } from '../../model/documents.js';

export interface IPatchFrame {
  op: 'patch';
  id: number;
  since: number; // the version that it belongs to
  version: number; // that it makes
  data: Patch;
}

export type Incoming =
  | IHello
  | ({ op: 'master' } & IMasterState)
  | { op: 'document'; id: number; version: number; data: object }
  | IPatchFrame
  | { op: 'error'; id: number; error: string }
  | { op: 'answer'; id: number; error: string; data: unknown }
  | { op: 'pong' };

export type Outgoing =
  | { op: 'follow'; id: number; document: string; args: object; version?: number }
  | { op: 'ack'; id: number; version: number }
  | { op: 'leave'; id: number }
  | { op: 'ask'; id: number; experiment_id: number; question: object }
  | { op: 'ping' };
