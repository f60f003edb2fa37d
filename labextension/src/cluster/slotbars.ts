/** A bar for each slot, by agent: its occupant as shape, pattern and text. */
import type { IAgentBar, IPoolSlots, ISlot, SlotState } from '../model/state.js';
import { focusedIn, h, rebuilder, setAttribute, setHidden } from '../dom/dom.js';
import { icon } from '../dom/icons.js';
import type { ITrans } from '../model/trans.js';

/** Bars per row; the same in the style sheet. */
const COLUMNS = 8;
const GAP = 3; // in pixels, between a bar and its tooltip

export class SlotBars {
  readonly node = h('div.det-pools');

  constructor(private readonly _trans: ITrans) {
    this.node.addEventListener('keydown', event => this._onKey(event));
    this.node.addEventListener('focusin', event => this._onFocus(event.target));
    this.node.addEventListener('focusout', () => this._show(null));
    this.node.addEventListener('pointerover', event => this._show(barAt(event.target)));
    this.node.addEventListener('pointerleave', () => this._show(focusedIn(this.node)));
  }

  /** Draw the bars and keep the focus. */
  update(pools: IPoolSlots[]): void {
    const held = focusedIn(this.node)?.getAttribute('data-slot');
    this._draw(pools);
    const bars = this._bars();
    const stop =
      bars.find(bar => bar.getAttribute('data-slot') === (held ?? this._stop)) ?? bars[0];
    this._makeStop(stop ?? null);
    if (held && stop) {
      stop.focus();
    }
  }

  private _pool(pool: IPoolSlots, place: number, isAlone: boolean): HTMLElement {
    const name = this._trans.__('Pool %1', pool.name);
    const head = h(
      'div.det-line',
      { hidden: isAlone },
      h('b', {}, name),
      h('span.det-quiet', {}, `${pool.counts} · ${pool.rules}`)
    );
    return h(
      'section.det-pool',
      { 'aria-label': name },
      head,
      ...pool.agents.map((agent, i) => this._agent(agent, `${place}.${i}`)),
      pool.more ? h('p.det-quiet', {}, pool.more) : null
    );
  }

  private _agent(agent: IAgentBar, key: string): HTMLElement {
    const bars = agent.slots.map(slot => h('li', {}, this._bar(slot, agent, key)));
    return h(
      'div.det-agent',
      { 'data-gone': !agent.is_connected },
      h(
        'div.det-line',
        {},
        h('span.det-agent-id', {}, agent.is_connected ? null : icon('disabled'), agent.id),
        h('span.det-quiet', {}, agent.note)
      ),
      bars.length > 0
        ? h('ul.det-slots', { 'aria-label': this._trans.__('Slots of %1', agent.id) }, ...bars)
        : null,
      agent.more ? h('p.det-quiet', {}, agent.more) : null
    );
  }

  private _bar(slot: ISlot, agent: IAgentBar, key: string): HTMLElement {
    const words: Partial<Record<SlotState, string>> = {
      leaving: this._trans.__('leaving'),
      occupied: this._trans.__('occupied'),
      lost: this._trans.__('lost')
    };
    const word = words[slot.state] ?? '';
    const bar = h(
      'button.det-slot',
      {
        type: 'button',
        tabindex: -1,
        'data-state': slot.state,
        'data-own': slot.is_own,
        'data-slot': `${key}.${slot.id}`,
        'aria-label': [agent.id, ...slot.facts].join(', ')
      },
      h(
        'span.det-slot-head',
        {},
        icon(slot.is_own && slot.state === 'used' ? 'own' : slot.state),
        h('b', {}, String(slot.id)),
        h('span', {}, word)
      ),
      h('span.det-slot-who', {}, slot.who)
    );
    this._facts.set(bar, slot.facts);
    return bar;
  }

  private _onFocus(target: EventTarget | null): void {
    const bar = barAt(target);
    if (bar !== null) {
      this._makeStop(bar);
      this._show(bar);
    }
  }

  /** Make one bar the tab stop; the others are reached by arrow keys. */
  private _makeStop(stop: HTMLElement | null): void {
    this._stop = stop?.getAttribute('data-slot') ?? null;
    this._bars().forEach(bar => setAttribute(bar, 'tabindex', bar === stop ? 0 : -1));
  }

  private _onKey(event: KeyboardEvent): void {
    const bar = barAt(event.target);
    if (event.key === 'Escape' && !this._tip.hidden) {
      this._show(null);
      event.stopPropagation();
      return;
    }
    const next = bar === null ? undefined : this._neighbour(bar, event.key);
    if (next !== undefined) {
      next.focus();
      event.preventDefault();
      event.stopPropagation();
    }
  }

  private _neighbour(bar: HTMLElement, key: string): HTMLElement | undefined {
    const bars = this._bars();
    const place = bars.indexOf(bar);
    const moves: Record<string, number> = { ArrowLeft: -1, ArrowRight: 1 };
    switch (key) {
      case 'Home':
        return bars[0];
      case 'End':
        return bars.at(-1);
      case 'ArrowUp':
      case 'ArrowDown':
        return this._inNextRow(bar, key === 'ArrowUp' ? -1 : 1);
      default:
        return key in moves ? bars[place + (moves[key] as number)] : undefined;
    }
  }

  private _inNextRow(bar: HTMLElement, step: number): HTMLElement | undefined {
    const rows = [...this.node.querySelectorAll('.det-slots')].flatMap(list => {
      const bars = [...list.querySelectorAll<HTMLElement>('.det-slot')];
      return Array.from({ length: Math.ceil(bars.length / COLUMNS) }, (_, i) =>
        bars.slice(i * COLUMNS, (i + 1) * COLUMNS)
      );
    });
    const place = rows.findIndex(row => row.includes(bar));
    const row = rows[place + step];
    return row?.[Math.min(rows[place]?.indexOf(bar) ?? 0, row.length - 1)];
  }

  /** Show the facts of a slot beside its bar; `null`: hide them. */
  private _show(bar: Element | null): void {
    const facts = bar instanceof HTMLElement ? this._facts.get(bar) : undefined;
    setHidden(this._tip, facts === undefined);
    if (facts === undefined || !(bar instanceof HTMLElement)) {
      return;
    }
    this._tip.replaceChildren(...facts.map(fact => h('div', {}, fact)));
    const [box, around] = [bar.getBoundingClientRect(), this.node.getBoundingClientRect()];
    const { offsetWidth: width, offsetHeight: height } = this._tip;
    const room = Math.max(0, around.width - width);
    // The notebook cuts off what is below the view.
    const end = this.node.closest('.det-view')?.getBoundingClientRect().bottom ?? Infinity;
    const top = box.bottom + GAP + height > end ? box.top - GAP - height : box.bottom + GAP;
    this._tip.style.left = `${Math.min(box.left - around.left, room)}px`;
    this._tip.style.top = `${top - around.top}px`;
  }

  private _bars(): HTMLElement[] {
    return [...this.node.querySelectorAll<HTMLElement>('.det-slot')];
  }

  private readonly _tip = h('div.det-tip', { hidden: true, 'aria-hidden': 'true' });
  private readonly _facts = new WeakMap<HTMLElement, string[]>();
  private readonly _draw = rebuilder(this.node, (pools: IPoolSlots[]) => {
    this._tip.hidden = true;
    return [...pools.map((pool, i) => this._pool(pool, i, pools.length === 1)), this._tip];
  });
  private _stop: string | null = null;
}

function barAt(target: EventTarget | null): HTMLElement | null {
  return target instanceof Element ? target.closest<HTMLElement>('.det-slot') : null;
}
