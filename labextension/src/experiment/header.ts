/** The top of the view: state, name, buttons, progress, and the result of the last request. */
import {
  focusedIn,
  h,
  prose,
  rebuilder,
  setAttribute,
  setHidden,
  setProse,
  setText
} from '../dom/dom.js';
import { formatClock, formatDuration, formatPercent } from '../model/format.js';
import { icon } from '../dom/icons.js';
import { Bell } from './bell.js';
import { Notice, type IRequestContext } from '../dom/notice.js';
import { isEnded, type Clock } from '../model/clock.js';
import { STATUS_WORDS, type IAction, type IViewState, type Verb } from '../model/state.js';

export class Header {
  readonly node: HTMLElement;
  /** The end of the last line, for tools of the part below. */
  readonly aside = h('div.det-aside');

  constructor(private readonly _requests: IRequestContext) {
    const { trans } = _requests;
    this._bar = h('div.det-progress', {
      role: 'progressbar',
      'aria-label': trans.__('Progress'),
      'aria-valuemin': 0,
      'aria-valuemax': 100
    });
    this._bar.append(this._fill);
    this._notice = new Notice(_requests);
    this._bell = new Bell(trans, text => this._notice.say(text));
    this._confirm = this._makeConfirm();
    this._summary.title = trans.__(
      'Elapsed is the time in which it held slots: waiting and pauses do not count.'
    );
    this.node = h(
      'header.det-header',
      {},
      h(
        'div.det-title',
        {},
        this._badge,
        h('div.det-names', {}, this._name, this._id, this._labels),
        h('div.det-actions', {}, this._bell.node, this._buttons, this._confirm)
      ),
      this._notice.node,
      h('div.det-track', {}, this._bar, this._percent),
      this._description,
      this._message,
      this._alarms,
      h('div.det-line.det-quiet', {}, this._summary, this._news, this.aside)
    );
  }

  update(state: IViewState): void {
    // The word of a diverging run is not that of its status.
    const isAlarm = state.alarms.length > 0 && state.status_word !== STATUS_WORDS[state.status];
    setAttribute(this._badge, 'data-alarm', String(isAlarm));
    this._drawBadge({ status: state.status, word: state.status_word });
    setText(this._name, state.name);
    this._drawLabels(state.labels);
    setText(this._description, state.description);
    setHidden(this._description, !state.description);
    setText(this._id, this._requests.trans.__('experiment %1', state.id));
    setAttribute(this._bar, 'aria-valuenow', Math.floor(state.progress * 100));
    setAttribute(this._bar, 'data-status', state.status);
    this._fill.style.width = `${(state.progress * 100).toFixed(2)}%`;
    setText(this._percent, formatPercent(state.progress));
    const hasFailed = state.status === 'error' && state.message !== '';
    setProse(this._message, state.message);
    setHidden(this._message, !state.message || hasFailed);
    this._drawAlarms(hasFailed ? [state.message, ...state.alarms] : state.alarms);
    // An ended experiment has no disabled buttons: their reason would be the status again.
    const isOver = isEnded(state.status) && state.actions.every(({ enabled }) => !enabled);
    this._drawButtons({ actions: isOver ? [] : state.actions, busy: [...this._busy] });
    this._canKill = state.actions.some(action => action.verb === 'kill' && action.enabled);
    if (!this._canKill) {
      this._askToKill(false);
    }
  }

  /** Accept a state without drawing it. */
  note(state: IViewState): void {
    this._bell.update(state);
  }

  /** Redraw what changes with time. */
  tick(state: IViewState, clock: Clock, now: number): void {
    const { trans } = this._requests;
    const ended = state.ended_at !== null || isEnded(state.status);
    const { held_s: held, held_since: since } = state;
    const elapsed = held + (since === null ? 0 : Math.max(0, clock.time(now) - since));
    const parts = [...state.summary, trans.__('%1 elapsed', formatDuration(elapsed))];
    if (state.eta_s !== null && !ended && !clock.isStale(now)) {
      const left = state.eta_s - (clock.time(now) - state.as_of);
      parts.push(trans.__('about %1 left', formatDuration(left)));
    }
    setText(this._summary, parts.join(' · '));
    const stale = !ended && clock.isStale(now);
    setText(this._news, stale ? trans.__('last news at %1', formatClock(state.as_of)) : '');
  }

  private _makeConfirm(): HTMLElement {
    const { trans } = this._requests;
    const kill = h('button.det-button.det-mod-danger', { type: 'button' }, trans.__('Kill'));
    const keep = h('button.det-button', { type: 'button' }, trans.__('Keep it'));
    kill.addEventListener('click', () => {
      this._askToKill(false);
      void this._request('kill');
    });
    keep.addEventListener('click', () => this._askToKill(false));
    const question = trans.__('Kill this experiment?');
    const group = h('div.det-confirm', { role: 'group', 'aria-label': question, hidden: true });
    group.append(h('span', {}, question), kill, keep);
    group.addEventListener('keydown', event => {
      if (event.key === 'Escape') {
        this._askToKill(false);
        event.stopPropagation();
      }
    });
    this._keep = keep;
    return group;
  }

  private _askToKill(ask: boolean): void {
    const isConfirming = !this._confirm.hidden;
    if (ask === isConfirming) {
      return;
    }
    const held = focusedIn(this._confirm) !== null;
    setHidden(this._confirm, !ask);
    setHidden(this._buttons, ask);
    if (ask) {
      this._keep?.focus();
    } else if (held) {
      this._buttons.querySelector<HTMLElement>('[data-verb=kill]')?.focus();
    }
  }

  private _button(action: IAction, busy: boolean): HTMLElement {
    const enabled = action.enabled && !busy;
    // Not `disabled`, so that the keyboard reaches the button and its reason.
    const button = h(
      'button.det-button',
      {
        type: 'button',
        title: action.why,
        'data-verb': action.verb,
        'aria-disabled': enabled ? null : 'true',
        'aria-description': action.why,
        'aria-busy': busy ? 'true' : null
      },
      icon(action.verb),
      action.label
    );
    button.addEventListener('click', () => {
      if (!enabled) {
        return;
      }
      if (action.verb === 'kill') {
        this._askToKill(true);
      } else {
        void this._request(action.verb);
      }
    });
    return button;
  }

  private async _request(verb: Verb): Promise<void> {
    this._setBusy(verb, true);
    await this._notice.ask(verb);
    this._setBusy(verb, false);
  }

  private _setBusy(verb: Verb, busy: boolean): void {
    this._busy[busy ? 'add' : 'delete'](verb);
    this._drawButtons({ ...this._drawn, busy: [...this._busy] });
  }

  private readonly _badge = h('span.det-badge', { role: 'status' });
  private readonly _drawBadge = rebuilder(
    this._badge,
    ({ status, word }: { status: IViewState['status']; word: string }) => {
      setAttribute(this._badge, 'data-status', status);
      return [icon(status), word];
    }
  );
  private readonly _buttons = h('div.det-buttons');
  private _drawn: { actions: IAction[]; busy: Verb[] } = { actions: [], busy: [] };
  private readonly _rebuildButtons = rebuilder(
    this._buttons,
    ({ actions, busy }: { actions: IAction[]; busy: Verb[] }) =>
      actions.map(action => this._button(action, busy.includes(action.verb)))
  );
  /** Rebuild the buttons and keep the focus. */
  private _drawButtons(wanted: { actions: IAction[]; busy: Verb[] }): void {
    this._drawn = wanted;
    const verb = focusedIn(this._buttons)?.getAttribute('data-verb');
    this._rebuildButtons(wanted);
    if (verb) {
      this._buttons.querySelector<HTMLElement>(`[data-verb=${verb}]`)?.focus();
    }
  }
  private readonly _name = h('span.det-name');
  private readonly _id = h('span.det-quiet');
  private readonly _labels = h('span.det-labels');
  private readonly _drawLabels = rebuilder(this._labels, (labels: string[]) =>
    labels.map(label => h('span.det-label', {}, label))
  );
  private readonly _description = h('p.det-description.det-quiet', { hidden: true });
  private readonly _bar: HTMLElement;
  private readonly _fill = h('div.det-fill');
  private readonly _percent = h('span.det-percent');
  private readonly _summary = h('span');
  private readonly _news = h('span.det-news');
  private readonly _message = h('p.det-message', { hidden: true });
  private readonly _alarms = h('div', { role: 'alert' });
  private readonly _drawAlarms = rebuilder(this._alarms, (alarms: string[]) =>
    alarms.map(alarm => h('p.det-alarm', {}, icon('occupied'), h('span', {}, ...prose(alarm))))
  );
  private readonly _bell: Bell;
  private readonly _notice: Notice;
  private readonly _confirm: HTMLElement;
  private _keep: HTMLElement | undefined;
  private _canKill = false;
  private readonly _busy = new Set<Verb>();
}
