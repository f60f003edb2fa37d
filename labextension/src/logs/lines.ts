/** The newest log lines up to a limit, and the total number. */
import type { ILogLine, ILogPage } from '../model/answers.js';

export interface ILogFilter {
  trial_id: number | null;
  rank: number | null;
  /** Only of ranks on this agent. */
  agent: string | null;
  level: string | null;
  search: string;
}

export interface ILogQuery extends ILogFilter {
  after: number;
  /** The number of last lines; `null`: from the first on. */
  tail: number | null;
  /** At most so many, from the first on. */
  first?: number;
}

/** Fetches lines; rejects with a message for the user. */
export type AskLogs = (query: ILogQuery) => Promise<ILogPage>;

export const MAX_LINES = 1000;

export class LogLines {
  lines: ILogLine[] = [];
  total: number | null = 0;
  lastId = 0;

  /** Add newer lines; returns the added and the dropped ones. */
  add(page: ILogPage): { added: ILogLine[]; gone: ILogLine[] } {
    const open = new Map(
      this.lines.filter(line => line.is_open).map(line => [placeOf(line), line.id])
    );
    const rewritten = new Set<number>();
    for (const line of page.lines) {
      rewritten.add(open.get(placeOf(line)) ?? -1);
    }
    const all = [...this.lines.filter(line => !rewritten.has(line.id)), ...page.lines];
    const kept = all.slice(-MAX_LINES);
    const ids = new Set(kept.map(line => line.id));
    const gone = this.lines.filter(line => !ids.has(line.id));
    const replaced = this.lines.filter(line => rewritten.has(line.id)).length;
    this.total =
      this.total === null || page.total === null ? null : this.total + page.total - replaced;
    this.lines = kept;
    this.lastId = page.last_id;
    return { added: page.lines.filter(line => ids.has(line.id)), gone };
  }
}

function placeOf(line: ILogLine): string {
  return `${line.trial_id}.${line.run}.${line.rank}`;
}
