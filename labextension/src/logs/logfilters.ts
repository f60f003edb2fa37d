/** The filters of log lines: trial, rank, agent, level and text. */
import { h, setHidden } from '../dom/dom.js';
import type { ILogFilter } from './lines.js';
import type { ITrans } from '../model/trans.js';

const LEVELS = ['info', 'warning', 'error'];
const TYPED_MS = 300;

export class LogFilters {
  readonly node: HTMLElement;

  constructor(
    private readonly _trans: ITrans,
    private readonly _onChange: () => void
  ) {
    this._trial = h('select.det-field', { 'aria-label': _trans.__('Trial') });
    this._rank = h('select.det-field', { 'aria-label': _trans.__('Rank') });
    this._agent = h('select.det-field', { 'aria-label': _trans.__('Agent') });
    this._level = h('select.det-field', { 'aria-label': _trans.__('Level') });
    const words = LEVELS.map(level => [level, _trans.__('%1 and higher', level)] as const);
    fill(this._level, [['', _trans.__('all levels')], ...words]);
    const placeholder = _trans.__('Search: text or /regex/');
    this._search = h('input.det-field.det-log-search', {
      type: 'search',
      placeholder,
      'aria-label': placeholder
    });
    [this._trial, this._rank, this._agent, this._level].forEach(one =>
      one.addEventListener('change', () => this._onChange())
    );
    this._search.addEventListener('input', () => {
      clearTimeout(this._typing);
      this._typing = setTimeout(() => this._onChange(), TYPED_MS);
    });
    const selects = [this._trial, this._rank, this._agent, this._level];
    this.node = h('div.det-line', {}, ...selects, this._search);
    this.offerTrials([]);
    this.offerRanks(1);
    this.offerAgents([]);
  }

  get value(): ILogFilter {
    const number = (text: string): number | null => (text === '' ? null : Number(text));
    return {
      trial_id: number(this._trial.value),
      rank: number(this._rank.value),
      agent: this._agent.value || null,
      level: this._level.value || null,
      search: this._search.value
    };
  }

  /** Filter by trial and rank. */
  narrow(trialId: number, rank: number | null): void {
    this.offerTrials([...new Set([...this._trials, trialId])]);
    this.offerRanks((rank ?? 0) + 1);
    this._trial.value = String(trialId);
    this._rank.value = rank === null ? '' : String(rank);
    this._agent.value = '';
    this._level.value = '';
    this._search.value = '';
  }

  /** Set the trials to choose from; the choice is kept. */
  offerTrials(trials: number[]): void {
    const ids = [...trials].sort((one, other) => one - other);
    if (ids.join() !== this._trials.join() || this._trial.length === 0) {
      this._trials = ids;
      const options = ids.map(id => [String(id), this._trans.__('trial %1', id)] as const);
      fill(this._trial, [['', this._trans.__('all trials')], ...options]);
      setHidden(this._trial, ids.length < 2);
    }
  }

  /** Set the number of ranks to choose from, unless it was larger before. */
  offerRanks(numRanks: number): void {
    if (numRanks > this._numRanks) {
      this._numRanks = numRanks;
      const ranks = Array.from({ length: numRanks }, (_, rank) => String(rank));
      const options = ranks.map(rank => [rank, this._trans.__('rank %1', rank)] as const);
      fill(this._rank, [['', this._trans.__('all ranks')], ...options]);
      setHidden(this._rank, numRanks < 2);
    }
  }

  /** Add agents to choose from. */
  offerAgents(names: string[]): void {
    const known = [...new Set([...this._agents, ...names.filter(name => name !== '')])].sort();
    if (known.length > this._agents.length || this._agent.length === 0) {
      this._agents = known;
      const options = known.map(name => [name, this._trans.__('agent %1', name)] as const);
      fill(this._agent, [['', this._trans.__('all agents')], ...options]);
      setHidden(this._agent, known.length < 2);
    }
  }

  dispose(): void {
    clearTimeout(this._typing);
  }

  private readonly _trial: HTMLSelectElement;
  private readonly _rank: HTMLSelectElement;
  private readonly _agent: HTMLSelectElement;
  private readonly _level: HTMLSelectElement;
  private readonly _search: HTMLInputElement;
  private _trials: number[] = [];
  private _numRanks = 0;
  private _agents: string[] = [];
  private _typing: ReturnType<typeof setTimeout> | undefined;
}

function fill(select: HTMLSelectElement, options: (readonly [string, string])[]): void {
  const chosen = select.value;
  select.replaceChildren(...options.map(([value, text]) => h('option', { value }, text)));
  select.value = options.some(([value]) => value === chosen) ? chosen : '';
}
