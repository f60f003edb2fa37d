/** A recorded session at any moment of it: documents and answers (tests/docs_recording.py); pure. */
import { type Patch, patched } from '../../model/documents.js';
import type { IViewState } from '../../model/state.js';
import { answerOf, type IPageData, type IQuestion } from '../../pageanswers.js';

const ANSWERED = ['config', 'checkpoints', 'logs', 'series'];
export const REFUSED =
  'This is a recording: nothing can be changed, and nothing can be asked of a rank.';

export interface IStream {
  document: string;
  args: object;
  /** By version: seconds since the beginning, and what it changed. The first changes `{}`. */
  versions: [number, Patch][];
}

export interface IRecording {
  began_at: number;
  length_s: number;
  opened: number; // the experiment whose page is open at the beginning
  streams: IStream[];
  /** Answers, by experiment. */
  pages: Record<string, IPageData>;
}

/** A version of a document. */
export interface IVersion {
  version: number;
  data: object;
}

/** A document of a recording, which only goes forward. */
export interface ITrack {
  /** The version at a time in seconds; null before the first. */
  at(time: number): IVersion | null;
}

class Track implements ITrack {
  constructor(private readonly _stream: IStream) {}

  at(time: number): IVersion | null {
    for (const [at, patch] of this._stream.versions.slice(this._version)) {
      if (at > time) {
        break;
      }
      this._data = patched(this._data, patch);
      this._version += 1;
    }
    return this._version === 0 ? null : { version: this._version, data: this._data };
  }

  private _version = 0;
  private _data: object = {};
}

/** A search whose chosen trial has details: they are recorded apart from the rest. */
class ChosenTrack implements ITrack {
  constructor(
    private readonly _search: ITrack,
    private readonly _details: ITrack
  ) {}

  at(time: number): IVersion | null {
    const [whole, details] = [this._search.at(time), this._details.at(time)];
    if (whole === null || details === null) {
      return whole;
    }
    const state = whole.data as IViewState;
    return {
      version: whole.version + details.version,
      data: { ...state, search: { ...state.search, ...details.data } }
    };
  }
}

/** The document that a page follows; null if it was not recorded. */
export function trackOf(recording: IRecording, document: string, args: object): ITrack | null {
  const named = (name: string, wanted: object): ITrack | null => {
    const text = sorted(wanted);
    const found = recording.streams.find(one => one.document === name && sorted(one.args) === text);
    return found === undefined ? null : new Track(found);
  };
  const { chosen } = args as { chosen?: number | null };
  if (typeof chosen !== 'number') {
    return named(document, args);
  }
  const search = named(document, { ...args, chosen: null });
  const details = named('chosen', args);
  return search !== null && details !== null ? new ChosenTrack(search, details) : search;
}

function sorted(args: object): string {
  return JSON.stringify(Object.entries(args).sort(([a], [b]) => (a < b ? -1 : 1)));
}

/** The answer to a question at a time in seconds; its `error` is not empty if there is none. */
export function answerAt(
  recording: IRecording,
  experimentId: number,
  question: IQuestion,
  time: number
): object {
  const page = recording.pages[experimentId];
  const now = recording.began_at + time;
  if (page === undefined || !ANSWERED.includes(question.type)) {
    return { error: REFUSED };
  }
  const checkpoints = page.checkpoints.checkpoints.filter(one => one.created_at <= now);
  return answerOf(
    {
      ...page,
      logs: page.logs.filter(line => line.at <= now),
      checkpoints: { ...page.checkpoints, checkpoints, total: checkpoints.length }
    },
    question.query === undefined
      ? question
      : { ...question, query: { ...question.query, until: untilOf(question, now, stepsOf) } }
  );

  function stepsOf(trialId: number): number {
    const state = trackOf(recording, 'experiment', { experiment_id: experimentId, chosen: null });
    const { trials, search } = (state?.at(time)?.data ?? { trials: [] }) as IViewState;
    const trial = [...trials, ...(search?.rows ?? [])].find(one => one.id === trialId);
    return trial?.steps_completed ?? 0;
  }
}

/** The end of the axis: what came later is not shown yet. */
function untilOf(
  { query, trial_id: trial }: IQuestion,
  now: number,
  stepsOf: (trialId: number) => number
): number {
  const latest = query?.axis === 'batches' ? stepsOf(trial ?? 0) : now;
  return Math.min(query?.until ?? Infinity, latest);
}
