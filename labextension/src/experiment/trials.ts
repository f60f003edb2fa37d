/** The trials with their ranks: why each waits, where it runs, why it failed. */
import { h, rebuilder, setHidden, smallButton } from '../dom/dom.js';
import { isEnded } from '../model/clock.js';
import { formatPercent } from '../model/format.js';
import { icon } from '../dom/icons.js';
import type { IRequestContext } from '../dom/notice.js';
import type { IFailure, IRankStatus, ITrialDetails, IViewState } from '../model/state.js';
import { WaitNote } from '../cluster/waits.js';

export type ITrialsState = Pick<IViewState, 'trials' | 'num_trials'>;

type Shown = Omit<ITrialDetails, 'wait'>;

interface ITrialsData {
  trials: Shown[];
  numTrials: number;
}

export class Trials {
  readonly node = h('div.det-trials');

  constructor(private readonly _requests: IRequestContext) {}

  update({ trials, num_trials }: ITrialsState): void {
    // Built apart, as reasons change more often than the rest, which keeps selection and focus.
    this._rebuild({
      trials: trials.map(({ wait, ...shown }) => shown),
      numTrials: num_trials
    });
    trials.forEach(({ id, wait }) => this._notes.get(id)?.update(wait));
  }

  private readonly _rebuild = rebuilder(this.node, ({ trials, numTrials }: ITrialsData) => {
    const hidden = numTrials - trials.length;
    this._notes = new Map(
      trials.map(({ id }) => [id, this._notes.get(id) ?? new WaitNote(this._requests)])
    );
    return [
      ...trials.map(trial => this._trial(trial, numTrials)),
      hidden > 0
        ? h(
            'p.det-quiet',
            {},
            this._requests.trans._n('%1 more trial not shown', '%1 more trials not shown', hidden)
          )
        : null
    ];
  });

  private _notes = new Map<number, WaitNote>();
  /** The rank whose tools are shown. */
  private _open: { trialId: number; rank: number } | null = null;

  private _trial(trial: Shown, numTrials: number): HTMLElement {
    const trans = this._requests.trans;
    const ranks = trial.ranks.map(rank => this._rank(rank, trial));
    return h(
      'section.det-trial',
      { 'aria-label': trans.__('Trial %1', trial.id) },
      h(
        'div.det-line',
        {},
        h('span.det-trial-title', {}, icon(trial.status), this._title(trial, numTrials)),
        h('span.det-quiet', { title: trial.launch_note || null }, this._facts(trial))
      ),
      trial.makes_room ? h('p.det-waiting', {}, icon('leaving'), trial.makes_room) : null,
      this._notes.get(trial.id)?.node ?? null,
      trial.failure ? this._failure(trial.failure, trial.id) : null,
      ranks.length > 0 ? h('ul.det-ranks', { 'aria-label': trans.__('Ranks') }, ...ranks) : null
    );
  }

  private _title(trial: Shown, numTrials: number): string {
    const title = `${this._requests.trans.__('Trial %1', trial.id)} · ${trial.status_word.toLowerCase()}`;
    return numTrials > 1 ? `${title} · ${formatPercent(trial.progress)}` : title;
  }

  private _facts(trial: Shown): string {
    const trans = this._requests.trans;
    const parts: string[] = [];
    if (trial.ranks.length > 0) {
      parts.push(trans._n('%1 rank', '%1 ranks', trial.ranks.length));
    }
    if (trial.backend) {
      parts.push(trial.backend);
    }
    if (trial.first_step_s !== null) {
      parts.push(trans.__('first step after %1 s', trial.first_step_s.toFixed(2)));
    }
    if (trial.restarts > 0) {
      parts.push(trans._n('restarted %1 time', 'restarted %1 times', trial.restarts));
    }
    if (trial.num_recoveries > 0) {
      parts.push(trans._n('recovered %1 time', 'recovered %1 times', trial.num_recoveries));
    }
    if (trial.hparams) {
      parts.push(trial.hparams);
    }
    return parts.join(' · ');
  }

  private _rank(rank: IRankStatus, trial: Shown): HTMLElement {
    const { trans } = this._requests;
    const failed = trial.failure?.rank === rank.rank && trial.status === 'error';
    const status = failed ? 'error' : rank.status;
    const device = rank.device && rank.device !== 'cpu' ? ` · ${rank.device}` : '';
    const title = rank.hangs
      ? trans.__('rank %1: hangs', rank.rank)
      : trans.__('rank %1: %2', rank.rank, status);
    const shown = [
      h('span.det-unseen', {}, title),
      h('span.det-rank-number', { 'aria-hidden': 'true' }, String(rank.rank)),
      h('span.det-rank-slot', {}, rank.slot + device),
      h('span.det-quiet', {}, trans.__('pid %1', rank.pid)),
      icon(rank.hangs ? 'occupied' : status)
    ];
    const tools = this._tools(rank.rank, trial);
    const chip = { title, 'data-status': status, 'data-hangs': rank.hangs };
    return tools === null
      ? h('li.det-rank', chip, ...shown)
      : h('li.det-rank', chip, this._opener(shown, tools), tools);
  }

  private _opener(shown: Node[], tools: HTMLElement): HTMLElement {
    const opener = h(
      'button.det-rank-open',
      { type: 'button', 'aria-expanded': String(!tools.hidden) },
      ...shown
    );
    opener.addEventListener('click', () => {
      const isOpen = tools.hidden;
      this.node.querySelectorAll<HTMLElement>('.det-rank-tools').forEach(other => {
        setHidden(other, other !== tools || !isOpen);
        other.previousElementSibling?.setAttribute('aria-expanded', String(!other.hidden));
      });
      const { trial = 0, rank = 0 } = tools.dataset;
      this._open = isOpen ? { trialId: Number(trial), rank: Number(rank) } : null;
    });
    return opener;
  }

  /** The tools on a rank that are possible in the trial's state; `null` if there are none. */
  private _tools(rank: number, { id, status }: Shown): HTMLElement | null {
    const { rankTools = [] } = this._requests;
    const possible = rankTools.filter(({ isLive }) => !isLive || !isEnded(status));
    const { _open: open } = this;
    const isOpen = open !== null && open.trialId === id && open.rank === rank;
    return possible.length === 0
      ? null
      : h(
          'span.det-rank-tools',
          { hidden: !isOpen, 'data-trial': id, 'data-rank': rank },
          ...possible.map(({ label, caption, run }) =>
            smallButton(label, () => run(id, rank), { title: caption })
          )
        );
  }

  private _failure(failure: IFailure, trialId: number): HTMLElement {
    const trans = this._requests.trans;
    const facts: string[] = [];
    if (failure.rank !== null) {
      facts.push(trans.__('rank %1', failure.rank));
    }
    if (failure.where) {
      facts.push(failure.where);
    }
    if (failure.exit_code !== null) {
      facts.push(trans.__('exit code %1', failure.exit_code));
    }
    if (failure.again) {
      facts.push(trans.__('the trial went on in another run'));
    }
    const traceback = h('pre.det-traceback', { tabindex: 0 }, failure.traceback);
    return h(
      `div.det-failure${failure.again ? '.det-mod-past' : ''}` as 'div.det-failure',
      {},
      h('p.det-failure-error', {}, icon('error'), h('span', {}, failure.error)),
      facts.length > 0 ? h('p.det-quiet', {}, facts.join(' · ')) : null,
      failure.traceback
        ? h('details', { open: !failure.again }, h('summary', {}, trans.__('Traceback')), traceback)
        : null,
      this._logsButton(trialId, failure.rank)
    );
  }

  private _logsButton(trialId: number, rank: number | null): HTMLElement | null {
    const { trans, showLogs } = this._requests;
    if (showLogs === undefined) {
      return null;
    }
    const label = rank === null ? trans.__('Logs') : trans.__('Logs of rank %1', rank);
    return smallButton(label, () => showLogs(trialId, rank));
  }
}
