/** The panel on the left: its sections and how they share its height. */
import { SidePanel } from '@jupyterlab/ui-components';
import { MessageLoop } from '@lumino/messaging';
import { AccordionLayout, AccordionPanel, Panel, Widget } from '@lumino/widgets';

import { frames } from '../../dom/frames.js';
import { LinkBanner } from '../connection/linkbanner.js';
import type { IDetJupyter } from '../tokens.js';
import type { Memory } from './sidebarstate.js';
import type { Section } from './sidebarsection.js';
import { shareByChoice, shareByNeed } from './sharing.js';

const LEAST = 40; // least height of an open section with a body, in pixels
const STILL_MS = 700; // rows may move once the pointer has not moved for this time

export class SidebarPanel extends SidePanel {
  /**
   * @param _sections - From top to bottom; the last one is closed by default.
   * @param _rest - The index of the section that gets the remaining height.
   */
  constructor(
    det: IDetJupyter,
    private readonly _sections: readonly Section[],
    private readonly _rest: number,
    private readonly _memory: Memory
  ) {
    super({ header: new Panel() });
    if (!(this.content instanceof AccordionPanel)) {
      throw new Error('a SidePanel has another content than it had');
    }
    this._accordion = this.content;
    this.id = 'det-jupyter-sidebar';
    this.addClass('jp-DetSidebar');
    this._banner = new LinkBanner(det);
    const banner = new Widget({ node: this._banner.node });
    this.header.addWidget(banner);
    // A SidePanel does not update its layout when its header is resized.
    const { UnknownSize } = Widget.ResizeMessage;
    this._resized = new ResizeObserver(() => {
      MessageLoop.postMessage(this._accordion, UnknownSize);
      this.share();
    });
    this._resized.observe(banner.node);
    this._resized.observe(this._accordion.node);
    _sections.forEach(section => {
      this.addWidget(section);
      section.onNeed = () => frames.ask(this._shareSoon);
    });
    this._accordion.collapse(_sections.length - 1);
    this._listen();
  }

  override dispose(): void {
    if (!this.isDisposed) {
      document.removeEventListener('visibilitychange', this._onVisibility);
      clearTimeout(this._waiting);
      [this._share, this._shareSoon].forEach(draw => frames.drop(draw));
      this._resized.disconnect();
      this._banner.dispose();
      this._memory.dispose();
      super.dispose();
    }
  }

  /** Set the count beside the title of a section, and its tooltip. */
  setCount(section: Section, text: string, tooltip = ''): void {
    section.setCount(this._accordion.titles[this._sections.indexOf(section)], text, tooltip);
  }

  /** Open the sections as stored; later changes are stored. */
  restore(): void {
    const { open } = this._memory.kept;
    this._sections.forEach((_, place) => {
      if (open[place] === false) {
        this._accordion.collapse(place);
      } else {
        this._accordion.expand(place);
      }
    });
    this._accordion.expansionToggled.connect(this._onToggled, this);
    this._accordion.handleMoved.connect(this._onMoved, this);
    this.share();
  }

  /** Divide the height among the sections, in the next frame. */
  share(): void {
    frames.ask(this._share);
  }

  protected override onAfterShow(): void {
    this._look();
    this.share();
  }

  protected override onAfterHide(): void {
    this._look();
  }

  private _listen(): void {
    document.addEventListener('visibilitychange', this._onVisibility);
    const { node } = this._accordion;
    const note = (): void => {
      this._movedAt = performance.now();
    };
    node.addEventListener('pointermove', note, { passive: true });
    node.addEventListener('pointerdown', note, { passive: true });
    node.addEventListener('dblclick', ({ target }) => {
      if (target instanceof Element && target.closest('.lm-SplitPanel-handle') !== null) {
        this._memory.keep({ chosen: [] });
        this.share();
      }
    });
  }

  /** Waits until the pointer rests, so that rows do not move below it before a click. */
  private readonly _shareSoon = (): void => {
    const wait = this._movedAt + STILL_MS - performance.now();
    clearTimeout(this._waiting);
    if (wait > 0) {
      this._waiting = setTimeout(this._shareSoon, wait);
    } else {
      this._share();
    }
  };

  private readonly _share = (): void => {
    if (!this.isVisible || this.isDisposed) {
      return;
    }
    const { layout, node, spacing } = this._accordion;
    const titles = layout instanceof AccordionLayout ? layout.titleSpace : 0;
    const open = this._sections.filter(({ isHidden }) => !isHidden).length;
    const fixed = titles * this._sections.length + spacing * Math.max(0, open - 1);
    const needs = this._sections.map(({ isHidden, need }) =>
      isHidden || need === 0 ? 0 : Math.max(LEAST, need)
    );
    const space = Math.max(1, node.clientHeight - fixed);
    const { chosen } = this._memory.kept;
    const sizes =
      chosen.length === needs.length
        ? shareByChoice(needs, space, chosen)
        : shareByNeed(needs, space, this._rest);
    const rounded = JSON.stringify([space, ...sizes].map(Math.round));
    if (rounded !== this._shared) {
      this._shared = rounded;
      // Minimum heights depend on whether a section has a body. Fit at once: after the sizes are set, it
      // would take the old heights as requested.
      MessageLoop.sendMessage(this._accordion, Widget.Msg.FitRequest);
      this._accordion.setRelativeSizes(sizes);
    }
  };

  private _onToggled(): void {
    this._memory.keep({ open: this._sections.map(section => !section.isHidden) });
    this._shared = '';
    this.share();
  }

  private _onMoved(): void {
    const sizes = this._accordion.relativeSizes();
    const { chosen } = this._memory.kept;
    this._memory.keep({ chosen: sizes.map((size, place) => size || (chosen[place] ?? 0)) });
    this._shared = '';
  }

  private _look(): void {
    this._sections.forEach(section => section.look());
  }

  private readonly _onVisibility = (): void => this._look();
  private readonly _accordion: AccordionPanel;
  private readonly _banner: LinkBanner;
  private readonly _resized: ResizeObserver;
  private _movedAt = -STILL_MS;
  private _waiting: ReturnType<typeof setTimeout> | undefined;
  private _shared = '';
}
