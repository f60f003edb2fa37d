/** Answers the questions of a view from the data in its file (front/verbs/html_page.py); pure. */
import type {
  ICheckpointsAnswer,
  IConfigText,
  ILogLine,
  ILogPage,
  ISeries,
  ISeriesAnswer,
  ISeriesPage,
  ISeriesQuery,
  ITabsAnswer
} from './model/answers.js';
import type { Patch } from './model/documents.js';
import type { IViewState } from './model/state.js';

export interface IPageData {
  state: IViewState;
  /** Changes of the state when a trial of a search is chosen, by its id. */
  chosen: Record<string, Patch>;
  tabs: ITabsAnswer;
  config: IConfigText;
  checkpoints: ICheckpointsAnswer;
  /** The newest lines. */
  logs: ILogLine[];
  /** Pages by trial, kind, axis, and whether they have one column. */
  series: Record<string, ISeriesPage>;
  /** The code of the widget. */
  widget: string;
}

export interface IQuestion {
  type: string;
  request?: string;
  trial_id?: number | null;
  /** Of series. */
  query?: ISeriesQuery;
  /** Of lines, as ILogQuery has them. */
  rank?: number | null;
  agent?: string | null;
  level?: string | null;
  search?: string;
  after?: number;
  tail?: number | null;
  first?: number;
}

const NOT_LIVE = 'This page is a file: it shows what was, and cannot change anything.';
const LEVELS = ['debug', 'info', 'warning', 'error', 'critical'];

/** The answer to a question; its `error` is not empty if the file has none. */
export function answerOf(data: IPageData, question: IQuestion): object {
  const head = { type: question.type, request: question.request, error: '' };
  switch (question.type) {
    case 'tabs':
    case 'config':
    case 'checkpoints':
      return { ...data[question.type], ...head };
    case 'logs':
      return { ...logPage(data.logs, question), ...head };
    case 'series': {
      const answer = seriesAnswer(data.series, question);
      const error = 'This file has nothing of this trial here.';
      return answer === null ? { ...head, error } : { ...answer, ...head };
    }
    default:
      return { ...head, error: NOT_LIVE };
  }
}

function logPage(all: readonly ILogLine[], question: IQuestion): ILogPage {
  const { trial_id: trial, rank, agent, level, search, after, tail, first } = question;
  const least = LEVELS.indexOf(String(level));
  const fits = fitting(search ?? '');
  const matching = all.filter(
    line =>
      line.trial_id === (trial ?? line.trial_id) &&
      line.rank === (rank ?? line.rank) &&
      line.agent === (agent ?? line.agent) &&
      LEVELS.indexOf(String(line.level)) >= least &&
      line.id > (after ?? 0) &&
      fits(line.text)
  );
  const last = typeof tail === 'number' ? matching.slice(-tail) : matching;
  return {
    lines: typeof first === 'number' ? last.slice(0, first) : last,
    total: matching.length,
    last_id: all.at(-1)?.id ?? 0,
    is_over: true
  };
}

/** Whether a text has the words, or matches an expression between slashes. */
function fitting(search: string): (text: string) => boolean {
  const expression = /^\/(.+)\/$/.exec(search)?.[1];
  if (expression === undefined) {
    const wanted = search.toLowerCase();
    return text => text.toLowerCase().includes(wanted);
  }
  try {
    const pattern = new RegExp(expression);
    return text => pattern.test(text);
  } catch {
    return () => false;
  }
}

function seriesAnswer(
  pages: Record<string, ISeriesPage>,
  question: IQuestion
): ISeriesAnswer | null {
  const { query, trial_id: trial } = question;
  if (query === undefined) {
    return null;
  }
  const width = query.columns === 1 ? 'one' : 'all';
  const key = `${trial} ${query.of} ${query.axis} ${width}`;
  const page = pages[key] ?? pages[key.replace(/one$/, 'all')];
  if (page === undefined) {
    return null;
  }
  const has = (wanted: string[] | null | undefined, name: string): boolean =>
    wanted === null || wanted === undefined || wanted.includes(name);
  const series = page.series
    .filter(one => has(query.names, one.name) && has(query.sources, one.source))
    .map(one => within(one, query.since ?? -Infinity, query.until ?? Infinity));
  return { page: { ...page, series } };
}

function within(one: ISeries, since: number, until: number): ISeries {
  const isIn = one.x.map(x => since <= x && x <= until);
  const kept = (values: number[]): number[] => values.filter((_, i) => isIn[i]);
  return { ...one, x: kept(one.x), low: kept(one.low), mid: kept(one.mid), high: kept(one.high) };
}
